//! The choice of a path's controller. It is apart from [`Algorithm`] and [`Coupling`], which controllers use.

use super::{Algorithm, Bbr, Controller, Coupling, Cubic, NewReno};

impl Algorithm {
    /// Returns a controller for a new path whose packets contain `mtu_bytes` of chunks.
    pub fn controller(self, mtu_bytes: usize, cwnd_bytes: usize) -> Box<dyn Controller> {
        match self {
            Algorithm::Cubic => Box::new(Cubic::new(mtu_bytes, cwnd_bytes)),
            Algorithm::NewReno => Box::new(NewReno::new(mtu_bytes, cwnd_bytes)),
            Algorithm::Bbr => Box::new(Bbr::new(mtu_bytes, cwnd_bytes)),
        }
    }
}

impl Coupling {
    /// Returns a controller for a new path whose packets contain `mtu_bytes` of chunks.
    pub fn controller(
        self,
        algorithm: Algorithm,
        mtu_bytes: usize,
        cwnd_bytes: usize,
    ) -> Box<dyn Controller> {
        match self {
            Coupling::None => algorithm.controller(mtu_bytes, cwnd_bytes),
            _ => Box::new(NewReno::coupled(self, mtu_bytes, cwnd_bytes)),
        }
    }
}
