//! The congestion control algorithms, and their names.

use crate::error::by_name;

/// The congestion control of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Algorithm {
    /// RFC 9438: the window follows a cubic function of the time since the last loss.
    #[default]
    Cubic,
    /// RFC 9260 §7.2: a loss halves the window, and each round trip adds a packet.
    NewReno,
    /// draft-ietf-ccwg-bbr: a model of the path limits the rate and the data in flight. A loss rate below 2 % does not
    /// reduce them.
    Bbr,
}

impl Algorithm {
    /// All algorithms, the default first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr];

    /// Returns the name that [`FromStr`](std::str::FromStr) parses.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Cubic => "cubic",
            Algorithm::NewReno => "newreno",
            Algorithm::Bbr => "bbr",
        }
    }
}

by_name!(Algorithm, "no such congestion control: choose cubic, newreno or bbr");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood_and_named_in_the_advice() {
        let error = "Cubic".parse::<Algorithm>().expect_err("names are in lower case");
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert!(error.to_string().contains(algorithm.name()));
        }
    }
}
