//! Many threads on one association, many associations on one stack.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use swiftwater::{Stack, StackOptions};

use crate::pair::{must_end, pair};

const THREADS: usize = 8;
const EACH: usize = 500;

#[test]
fn many_threads_send_and_receive_on_one_association() {
    must_end(|| {
        let (client, server) = pair();
        let seen = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            for t in 0..THREADS {
                let client = client.clone();
                scope.spawn(move || {
                    for i in 0..EACH {
                        client.send(&((t * EACH + i) as u64).to_be_bytes()).unwrap();
                    }
                });
            }
            drop(client);
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // Every reader sees the end.
                    while let Some(message) = server.recv().unwrap() {
                        let number = u64::from_be_bytes(message.to_vec().try_into().unwrap());
                        assert!(seen.lock().unwrap().insert(number), "{number} came twice");
                    }
                });
            }
        });
        assert_eq!(seen.into_inner().unwrap().len(), THREADS * EACH);
        // A later read sees the end again.
        assert!(server.recv().unwrap().is_none());
    });
}

#[test]
fn threads_ask_on_associations_of_one_stack() {
    must_end(|| {
        let options =
            StackOptions::default().with_udp_port(0).with_local_addresses(vec!["127.0.0.1".parse().unwrap()]);
        let servers = Stack::bind(&options).unwrap();
        let clients = Stack::bind(&options).unwrap();
        let listener = servers.listen(7).unwrap();
        let address = listener.address();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..THREADS {
                    let (association, _) = listener.accept().unwrap();
                    scope.spawn(move || {
                        while let Some(message) = association.recv().unwrap() {
                            association.send_bytes(message.into_bytes(), &Default::default()).unwrap();
                        }
                    });
                }
            });
            for t in 0..THREADS {
                let (clients, address) = (&clients, &address);
                scope.spawn(move || {
                    let association = clients.connect(address).unwrap();
                    for i in 0..EACH {
                        let question = [t as u8, i as u8, (i >> 8) as u8];
                        association.send(&question).unwrap();
                        assert_eq!(association.recv().unwrap().unwrap().to_vec(), question);
                    }
                    association.close().unwrap();
                });
            }
        });
    });
}

#[test]
fn many_associations_on_one_stack() {
    must_end(|| {
        const COUNT: usize = 500;
        let options =
            StackOptions::default().with_udp_port(0).with_local_addresses(vec!["127.0.0.1".parse().unwrap()]);
        let stack = Stack::bind(&options).unwrap();
        let listener = stack.listen(0).unwrap();
        let address = listener.address();
        let ends: Vec<_> = (0..COUNT)
            .map(|_| {
                let client = stack.connect(&address).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        assert_eq!(stack.statistics().associations, 2 * COUNT);
        for (i, (client, _)) in ends.iter().enumerate() {
            client.send(&(i as u64).to_be_bytes()).unwrap();
        }
        for (i, (_, server)) in ends.iter().enumerate() {
            assert_eq!(server.recv().unwrap().unwrap().to_vec(), (i as u64).to_be_bytes());
        }
        for (client, server) in ends {
            drop(server);
            client.close().unwrap();
        }
    });
}
