//! One-to-many endpoints for tasks.

use std::time::Duration;

use swiftwater::tokio::{Association, Endpoint};
use swiftwater::{Address, Bytes, ConnectError, Event, Received, RecvError, SendError, SendInfo};
use tokio::time::timeout;

use crate::{on_runtimes, recv_whole};

const SOON: Duration = Duration::from_millis(5);

#[test]
fn serves_many_peers() {
    on_runtimes(|| async {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        let address = endpoint.address();
        let server = tokio::spawn(async move {
            let mut down = 0;
            while down < 10 {
                match endpoint.recv().await.unwrap() {
                    (id, Received::Message(message)) => {
                        endpoint.send_to(id, &message.to_vec(), &SendInfo::default()).await.unwrap();
                    }
                    (_, Received::Event(Event::Down(why))) => {
                        assert_eq!(why, None);
                        down += 1;
                    }
                    (_, Received::Event(_)) => {}
                }
            }
        });
        for i in 0..10u8 {
            let client = Association::connect(&address).await.unwrap();
            client.send(&[i; 100]).await.unwrap();
            assert_eq!(client.recv().await.unwrap().unwrap().to_vec(), [i; 100]);
            client.close().await.unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn connects() {
    on_runtimes(|| async {
        let server = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        let client = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        client.connect(server.address()).await.unwrap();
        let (id, event) = client.recv().await.unwrap();
        assert!(matches!(event, Received::Event(Event::Up)));
        client.send_to(id, b"hello", &SendInfo::default()).await.unwrap();
        loop {
            if let (_, Received::Message(message)) = server.recv().await.unwrap() {
                assert_eq!(message.to_vec(), b"hello");
                break;
            }
        }
        client.shutdown(id).await.unwrap();
        loop {
            if let (_, Received::Event(Event::Down(why))) = client.recv().await.unwrap() {
                assert_eq!(why, None);
                break;
            }
        }
    });
}

#[test]
fn is_writable_once_a_peer_that_had_no_room_reads() {
    on_runtimes(|| async {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        let client = Association::connect(endpoint.address()).await.unwrap();
        let (peer, _up) = endpoint.recv().await.unwrap();
        let message = [7; 10_000];
        // The client does not read, so at last the send buffer stays full.
        let mut sent = 0;
        loop {
            match endpoint.try_send_to(peer, &message, &SendInfo::default()) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) if timeout(SOON, endpoint.writable()).await.is_err() => break,
                Err(SendError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let reading = async {
            for _ in 0..sent {
                recv_whole(&client).await.expect("a message");
            }
        };
        let (writable, ()) = tokio::join!(endpoint.writable(), reading);
        writable.unwrap();
        endpoint.try_send_to(peer, &message, &SendInfo::default()).unwrap();
    });
}

#[test]
fn only_an_association_that_is_up_can_be_shut_down() {
    on_runtimes(|| async {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        let client = Association::connect(endpoint.address()).await.unwrap();
        let (id, _up) = endpoint.recv().await.unwrap();
        endpoint.shutdown(id).await.unwrap();
        assert!(client.recv().await.unwrap().is_none());
        while !matches!(endpoint.recv().await.unwrap(), (_, Received::Event(Event::Down(None)))) {}
        assert_eq!(endpoint.shutdown(id).await, Err(SendError::Closed));
    });
}

#[test]
fn sends_without_a_copy_to_one_of_several_addresses() {
    on_runtimes(|| async {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        let address = endpoint.address();
        let nobody = Address { port: 6, ..address.clone() };
        let client = Association::connect([nobody.to_string(), address.to_string()]).await.unwrap();
        let (id, _up) = endpoint.recv().await.unwrap();
        let mut reader = client.reader();
        assert_eq!(reader.try_recv().unwrap_err(), RecvError::WouldBlock);
        endpoint.send_bytes_to(id, Bytes::from_static(b"hello"), &SendInfo::default()).await.unwrap();
        endpoint.flush();
        client.readable().await.unwrap();
        assert_eq!(reader.try_recv().unwrap().unwrap().as_slice(), Some(&b"hello"[..]));
        endpoint.shutdown(id).await.unwrap();
        assert!(reader.recv().await.unwrap().is_none());
        assert!(reader.try_recv().unwrap().is_none());
    });
}

#[test]
fn an_address_that_no_server_can_have_is_refused_at_once() {
    on_runtimes(|| async {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await.unwrap();
        for server in ["127.0.0.1:0", "0.0.0.0:0", "224.0.0.1:7"] {
            let errors = [
                endpoint.connect(server).await.unwrap_err(),
                Association::connect(server).await.unwrap_err(),
            ];
            assert!(errors.iter().all(|error| matches!(error, ConnectError::InvalidRemote(_))), "{errors:?}");
        }
    });
}
