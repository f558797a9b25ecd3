//! A STREAMS module, pushed on a live association: it throws a message away that repeats the one before it on its SCTP stream.
//!
//! ```console
//! $ cargo run --features tokio --example module -- one one two two one
//! one
//! two
//! one
//! 2 repeated
//! ```

use std::collections::HashMap;
use std::env;
use std::error::Error;

use swiftwater::streams::{Message, Module, Q};
use swiftwater::{Association, Bytes, Listener};

/// What the last message of each SCTP stream was, down and up.
#[derive(Default)]
struct Unrepeat {
    down: HashMap<u16, Bytes>,
    up: HashMap<u16, Bytes>,
    repeated: u64,
}

/// Returns whether a message repeats the one before it. What is no user data, such as a shutdown, repeats nothing.
fn repeats(last: &mut HashMap<u16, Bytes>, m: &Message) -> bool {
    let Some(info) = m.user_data() else { return false };
    let data = m.data.clone().into_bytes();
    last.insert(info.stream, data.clone()) == Some(data)
}

impl Module for Unrepeat {
    fn name(&self) -> &str {
        "unrepeat"
    }

    /// On the way down. `pass` sends the message on to the next module or the driver, and heeds flow control.
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        match repeats(&mut self.down, &m) {
            true => self.repeated += 1,
            false => q.pass(m),
        }
    }

    /// On the way up. `freemsg` gives the room of the message in the receive window back.
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        match repeats(&mut self.up, &m) {
            true => {
                self.repeated += 1;
                q.freemsg(m);
            }
            false => q.pass(m),
        }
    }

    /// What `swiftwater streams` shows.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("repeated", self.repeated)]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    let client = Association::connect(listener.local_address())?;
    let (server, _) = listener.accept()?;
    client.stream().push(Box::<Unrepeat>::default())?;
    for message in env::args().skip(1) {
        client.send(message.as_bytes())?;
    }
    let modules = client.stream().describe().map(|stream| stream.modules).unwrap_or_default();
    client.shutdown()?;
    while let Some(message) = server.recv()? {
        println!("{}", String::from_utf8_lossy(&message.to_vec()));
    }
    for (what, count) in modules.iter().flat_map(|module| &module.counts) {
        println!("{count} {what}");
    }
    Ok(())
}
