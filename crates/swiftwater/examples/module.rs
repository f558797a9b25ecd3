//! A STREAMS module, pushed on a live association, that discards a message if it repeats the previous one of its SCTP
//! stream.
//!
//! ```console
//! $ cargo run -p swiftwater --features tokio --example module -- one one two two one
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

/// The last message of each SCTP stream, in both directions.
#[derive(Default)]
struct Unrepeat {
    down: HashMap<u16, Bytes>,
    up: HashMap<u16, Bytes>,
    repeated: u64,
}

/// Returns whether a message repeats the previous one. A message without user data, such as a shutdown, never does.
fn repeats(last: &mut HashMap<u16, Bytes>, m: &Message) -> bool {
    let Some(info) = m.user_data() else { return false };
    let data = m.data.clone().into_bytes();
    last.insert(info.stream, data.clone()) == Some(data)
}

impl Module for Unrepeat {
    fn name(&self) -> &str {
        "unrepeat"
    }

    /// Handles a message on its way down. `pass` sends it to the next module or the driver, and obeys flow control.
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        match repeats(&mut self.down, &m) {
            true => self.repeated += 1,
            false => q.pass(m),
        }
    }

    /// Handles a message on its way up. `freemsg` also releases its share of the receive window.
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        match repeats(&mut self.up, &m) {
            true => {
                self.repeated += 1;
                q.freemsg(m);
            }
            false => q.pass(m),
        }
    }

    /// Returns the counts that `swiftwater streams` shows.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("repeated", self.repeated)]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    let client = Association::connect(listener.address())?;
    let (server, _) = listener.accept()?;
    client.stream().push(Box::<Unrepeat>::default())?;
    for message in env::args_os().skip(1) {
        client.send(message.as_encoded_bytes())?;
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
