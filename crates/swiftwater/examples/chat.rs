//! A chat room: one endpoint talks to all participants (one-to-many style).
//!
//! ```console
//! $ cargo run -p swiftwater --features tokio --example chat -- room 127.0.0.62:7/udp:9862 &
//! the room is open at 127.0.0.62:7/udp:9862
//! ann joins
//! ann: hello
//! ann leaves
//! bob joins
//! bob: is anybody here?
//! bob leaves
//! $ echo hello | cargo run -p swiftwater --features tokio --example chat -- join 127.0.0.62:7/udp:9862 ann
//! ann: hello
//! $ echo 'is anybody here?' | cargo run -p swiftwater --features tokio --example chat -- join 127.0.0.62:7/udp:9862 bob
//! ann: hello
//! bob: is anybody here?
//! ```

use std::collections::{HashMap, VecDeque};
use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;

use swiftwater::{Association, AssociationId, Endpoint, Event, Message, Received, SendError, SendInfo};

/// Number of lines that a new participant gets.
const HISTORY_LINES_MAX: usize = 100;
/// Longest line.
const LINE_BYTES_MAX: usize = 1 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["room", address] => open(address),
        ["join", address, name] => join(address, name),
        _ => Err("usage: chat room ADDRESS | chat join ADDRESS NAME".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chat: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(address: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::bind(address)?;
    println!("the room is open at {}", endpoint.address());
    let mut room =
        Room { endpoint, begun: HashMap::new(), members: HashMap::new(), history: VecDeque::new() };
    loop {
        let (id, received) = room.endpoint.recv()?;
        match received {
            Received::Message(message) => room.take(id, &message),
            Received::Event(Event::PeerShutdown | Event::Down(Some(_))) => room.remove(id),
            // Further kinds of events may come with later versions.
            Received::Event(_) => {}
        }
    }
}

struct Room {
    endpoint: Endpoint,
    /// Lines whose end has not come yet: a long message comes in parts.
    begun: HashMap<AssociationId, Vec<u8>>,
    members: HashMap<AssociationId, String>,
    history: VecDeque<String>,
}

impl Room {
    /// Handles a message or a part of one.
    fn take(&mut self, id: AssociationId, message: &Message) {
        let mut line = self.begun.remove(&id).unwrap_or_default();
        line.extend(message.to_vec());
        if line.len() > LINE_BYTES_MAX {
            self.endpoint.abort(id, "a line is too long");
        } else if message.info.more {
            self.begun.insert(id, line);
        } else {
            self.hear(id, &String::from_utf8_lossy(&line));
        }
    }

    /// Handles a message: the first one of a participant is its name, each other one a line.
    fn hear(&mut self, id: AssociationId, text: &str) {
        match self.members.get(&id) {
            Some(name) => self.tell_all(format!("{name}: {text}")),
            None => {
                println!("{text} joins");
                self.history.iter().for_each(|line| self.tell(id, line));
                self.members.insert(id, text.to_owned());
            }
        }
    }

    fn tell_all(&mut self, line: String) {
        println!("{line}");
        self.members.keys().for_each(|id| self.tell(*id, &line));
        self.history.push_back(line);
        if self.history.len() > HISTORY_LINES_MAX {
            self.history.pop_front();
        }
    }

    /// Sends without waiting: a participant that does not read misses lines, and delays nobody.
    fn tell(&self, id: AssociationId, line: &str) {
        match self.endpoint.try_send_to(id, line.as_bytes(), &SendInfo::default()) {
            // An event reports a participant that has left.
            Ok(()) | Err(SendError::WouldBlock | SendError::Closed) => {}
            Err(error) => self.endpoint.abort(id, error.to_string()),
        }
    }

    fn remove(&mut self, id: AssociationId) {
        self.begun.remove(&id);
        if let Some(name) = self.members.remove(&id) {
            println!("{name} leaves");
        }
    }
}

/// Sends the lines of standard input, and prints the lines of the room until all sent lines have come back.
fn join(address: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let association = Association::connect(address)?;
    association.send(name.as_bytes())?;
    let mut own_lines = 0;
    for line in io::stdin().lines() {
        let line = line?;
        if !line.is_empty() {
            association.send(line.as_bytes())?;
            own_lines += 1;
        }
    }
    let own_prefix = format!("{name}: ");
    while own_lines > 0 {
        let line = receive_line(&association)?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        own_lines -= usize::from(line.starts_with(&own_prefix));
    }
    association.close()?;
    Ok(())
}

/// Receives all parts of a line.
fn receive_line(association: &Association) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut line = Vec::new();
    loop {
        let part = association.recv()?.ok_or("the room is closed")?;
        line.extend(part.to_vec());
        if !part.info.more {
            return Ok(line);
        }
    }
}
