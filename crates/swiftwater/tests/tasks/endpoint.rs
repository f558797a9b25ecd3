//! One-to-many endpoints for tasks.

use swiftwater::tokio::{Association, Endpoint};
use swiftwater::{Event, Received, SendInfo};

use crate::on_runtimes;

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
