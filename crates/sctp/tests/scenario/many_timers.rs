//! Timers of very many associations that expire at once.

use std::net::SocketAddr;
use std::sync::Arc;

use lab::App;
use sctp::{AssociationConfig, BatchLimits, Endpoint, EndpointConfig, Scope, Time, TransmitBuffer};

const ASSOCIATIONS: usize = 1000;
/// Maximum number of timers after which other work must get its turn.
const AT_ONCE_MAX: usize = 100;

#[test]
fn other_work_goes_on_while_thousands_of_timers_expire() {
    let limits = BatchLimits { segments_max: 1, bytes_max: 1500 };
    let mut endpoint = Endpoint::new(EndpointConfig::default(), [1; 32], limits);
    let (mut app, mut buffer) = (App::default(), TransmitBuffer::new());
    let config = Arc::new(AssociationConfig::default());
    let peer = SocketAddr::from(([10, 0, 0, 9], 9899));
    for port in 1..=ASSOCIATIONS {
        let connected = endpoint.connect(Time::ZERO, port as u16, 7, &[peer], Arc::clone(&config), &app);
        connected.unwrap();
    }
    let mut sent = |endpoint: &mut Endpoint, now| {
        std::iter::from_fn(|| endpoint.poll_transmit(now, Scope::All, &mut buffer)).count()
    };
    assert_eq!(sent(&mut endpoint, Time::ZERO), ASSOCIATIONS);
    let now = endpoint.poll_timeout().unwrap();
    let mut repeated = 0;
    while endpoint.poll_timeout().is_some_and(|at| at <= now) {
        endpoint.handle_timeout(now, &mut app);
        let at_once = sent(&mut endpoint, now);
        assert!(at_once <= AT_ONCE_MAX, "{at_once} timers were handled at once");
        repeated += at_once;
    }
    assert_eq!(repeated, ASSOCIATIONS, "each repeats its INIT");
}
