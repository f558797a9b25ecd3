//! Both sides connect to each other at once: one association comes of it (RFC 9260 §5.2.1, §5.2.4 B and D).

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, SendInfo};

use lab::{A, B, Fate, Lab, PORT_A, PORT_B};

const SOON: Duration = Duration::from_secs(30);

fn connected(lab: &Lab, node: usize) -> bool {
    lab.node(node).app.saw(|e| matches!(e, Event::Connected { .. }))
}

fn talk(lab: &mut Lab) {
    assert_eq!([A, B].map(|n| lab.node(n).endpoint.association_count()), [1, 1], "{}", lab.log());
    for (node, text) in [(A, "from A"), (B, "from B")] {
        let id = lab.app(node).events.last().unwrap().id;
        lab.send(node, id, SendInfo::default(), text);
    }
    lab.run_until("both heard", SOON, |lab| [A, B].iter().all(|&n| lab.node(n).app.messages.len() == 1));
    assert_eq!(lab.app(A).contents(), [b"from B"]);
    let id = lab.app(A).events.last().unwrap().id;
    lab.shutdown(A, id);
    lab.run_until("both are closed", SOON, |lab| {
        [A, B].iter().all(|&n| lab.closed(n) == Some(CloseReason::Shutdown))
    });
}

#[test]
fn two_inits_that_cross_make_one_association() {
    let mut lab = Lab::new(1);
    lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    lab.connect(B, (PORT_B, PORT_A), AssociationConfig::default());
    lab.run_until("both are up", SOON, |lab| connected(lab, A) && connected(lab, B));
    lab.run_for(SOON);
    talk(&mut lab);
}

#[test]
fn they_may_cross_at_any_distance() {
    for delay_us in (0..60_000).step_by(2_500) {
        let mut lab = Lab::new(delay_us);
        lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        lab.run_for(Duration::from_micros(delay_us));
        // Once A's INIT was refused there is nothing left to collide with.
        if lab.closed(A).is_some() || delay_us > 10_000 {
            break;
        }
        lab.connect(B, (PORT_B, PORT_A), AssociationConfig::default());
        lab.run_until("both are up", SOON, |lab| connected(lab, A) && connected(lab, B));
        lab.run_for(SOON);
        talk(&mut lab);
    }
}

#[test]
fn they_may_cross_with_a_listener_on_either_side() {
    for delay_us in (0..45_000).step_by(1_500) {
        let mut lab = Lab::new(1000 + delay_us);
        lab.listen(AssociationConfig::default());
        lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        lab.run_for(Duration::from_micros(delay_us));
        let remote = lab.node(A).address;
        let now = lab.now();
        let node = lab.node_mut(B);
        let config = AssociationConfig::default().into();
        // B has taken A's association if the cookie was there before.
        let own = node.endpoint.connect(now, PORT_B, PORT_A, &[remote], config, &node.app);
        assert_eq!(own.is_err(), lab.is_up(B));
        lab.run_until("both are up", SOON, |lab| lab.is_up(A) && lab.is_up(B));
        lab.run_for(SOON);
        talk(&mut lab);
    }
}

#[test]
fn lost_packets_do_not_matter() {
    for lost in 0..12u32 {
        let mut lab = Lab::new(2000 + u64::from(lost));
        for node in [A, B] {
            let mut number = 0;
            lab.tap(node, move |_| {
                number += 1;
                // Each combination of the first packets of both sides.
                let mask = if node == A { lost % 4 } else { lost / 4 };
                if number <= 2 && mask >> (number - 1) & 1 == 1 { Fate::Drop } else { Fate::Pass }
            });
        }
        lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        lab.connect(B, (PORT_B, PORT_A), AssociationConfig::default());
        lab.run_until("both are up", SOON, |lab| connected(lab, A) && connected(lab, B));
        lab.run_for(SOON);
        talk(&mut lab);
    }
}
