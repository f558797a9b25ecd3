//! Several addresses of one peer.

use std::net::{IpAddr, Ipv4Addr};

use swiftwater::{
    Association, AssociationOptions, Endpoint, Event, Listener, Multipath, PathError, PathStatistics,
    Received, SendInfo, StackOptions, Statistics,
};

use crate::pair::must_end;

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn at_two_addresses() -> StackOptions {
    StackOptions::default().with_local_addresses(vec![FIRST, SECOND]).with_udp_port(0)
}

fn active(statistics: &Statistics) -> usize {
    statistics.paths.iter().filter(|path| path.active).count()
}

fn primary(statistics: &Statistics) -> IpAddr {
    statistics.paths[statistics.primary].remote.ip()
}

#[test]
fn the_primary_path_is_chosen_by_its_address() {
    must_end(|| {
        let stack = swiftwater::Stack::bind(&at_two_addresses()).unwrap();
        let listener: Listener = stack.listen(0).unwrap();
        let client = Association::connect_with(listener.address(), &at_two_addresses()).unwrap();
        let (server, _) = listener.accept().unwrap();
        // The second address is confirmed while messages are exchanged.
        while active(&client.statistics().unwrap()) < 2 {
            client.send(b"ping").unwrap();
            server.recv().unwrap().unwrap();
        }
        for address in [SECOND, FIRST, SECOND] {
            client.set_primary(address).unwrap();
            assert_eq!(primary(&client.statistics().unwrap()), address);
        }
        client.send(b"on the second").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"on the second");
        let address = IpAddr::from([192, 0, 2, 7]);
        let error = client.set_primary(address).unwrap_err();
        assert_eq!(error, PathError::NoSuchPath { address });
        assert!(error.to_string().contains("192.0.2.7"));
        let keeps = client.clone();
        client.abort("done");
        assert_eq!(keeps.set_primary(FIRST), Err(PathError::Closed));
    });
}

#[test]
fn on_one_host_one_path_carries_all_unless_asked() {
    must_end(|| {
        let stack = swiftwater::Stack::bind(&at_two_addresses()).unwrap();
        let listener: Listener = stack.listen(0).unwrap();
        for (multipath, both) in [(Multipath::Agreed, false), (Multipath::Always, true)] {
            let association = AssociationOptions::default().with_multipath(multipath);
            let options = at_two_addresses().with_association(association);
            let client = Association::connect_with(listener.address(), &options).unwrap();
            let (server, _) = listener.accept().unwrap();
            let reader = std::thread::spawn(move || while server.recv().unwrap().is_some() {});
            let used = |path: &PathStatistics| path.delivered_bytes > 0;
            for _ in 0..50_000 {
                client.send(&[0; 4000]).unwrap();
            }
            let paths = client.statistics().unwrap().paths;
            // On a busy machine a path may seem silent for a moment, and its data takes the other path.
            let silent = paths.iter().any(|path| path.early_failovers + path.timeouts > 0);
            assert!(silent || paths.iter().all(used) == both, "{multipath}: {paths:?}");
            client.close().unwrap();
            reader.join().unwrap();
        }
    });
}

#[test]
fn an_endpoint_chooses_for_each_of_its_associations() {
    must_end(|| {
        let stack = swiftwater::Stack::bind(&at_two_addresses()).unwrap();
        let endpoint: Endpoint = stack.endpoint(0).unwrap();
        let client = Association::connect_with(endpoint.address(), &at_two_addresses()).unwrap();
        let id = loop {
            client.send(b"ping").unwrap();
            if let (id, Received::Message(message)) = endpoint.recv().unwrap() {
                endpoint.send_to(id, &message.to_vec(), &SendInfo::default()).unwrap();
                client.recv().unwrap().unwrap();
                if endpoint.statistics(id).is_some_and(|statistics| active(&statistics) == 2) {
                    break id;
                }
            }
        };
        for address in [SECOND, FIRST] {
            endpoint.set_primary(id, address).unwrap();
            assert_eq!(primary(&endpoint.statistics(id).unwrap()), address);
        }
        client.abort("done");
        while !matches!(endpoint.recv().unwrap(), (_, Received::Event(Event::Down(_)))) {}
        assert_eq!(endpoint.set_primary(id, FIRST), Err(PathError::Closed));
        assert!(endpoint.statistics(id).is_none());
    });
}
