//! Receive window that a relay keeps occupied until its reader has read.

use swiftwater::AssociationOptions;
use swiftwater::internals::{hold_window_from, release_window, window_bytes};

use crate::pair::{for_tasks, must_end, pair, pair_with, pattern};

#[test]
fn long_messages_count_as_unread_until_their_window_is_released() {
    must_end(|| {
        let (client, server) = pair();
        hold_window_from(&for_tasks(&server), 10);
        client.send(b"short").unwrap();
        client.send(b"for another").unwrap();
        server.recv().unwrap().unwrap();
        let message = server.recv().unwrap().unwrap();
        let unread_bytes = || server.statistics().unwrap().receive_buffered_bytes;
        assert_eq!(unread_bytes(), window_bytes(&message) as u64);
        release_window(&for_tasks(&server), window_bytes(&message));
        assert_eq!(unread_bytes(), 0);
    });
}

#[test]
fn a_reader_that_has_kept_its_window_closed_opens_it_when_it_leaves() {
    must_end(|| {
        let options = AssociationOptions::default()
            .with_receive_buffer_bytes(16 << 10)
            .with_receive_buffer_bytes_max(0);
        let (client, server) = pair_with(&options.into());
        for i in 0..200 {
            client.send(&pattern(i, 1000)).unwrap();
        }
        hold_window_from(&for_tasks(&server), 0);
        let mut kept_bytes = 0;
        while kept_bytes < 15 << 10 {
            kept_bytes += window_bytes(&server.recv().unwrap().unwrap());
        }
        drop(server);
        // Everything that the window has held back leaves before the association ends.
        client.close().unwrap();
    });
}
