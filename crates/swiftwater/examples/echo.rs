//! An echo server with a thread for each association, and its client (one-to-one style).
//!
//! ```console
//! $ cargo run -p swiftwater --features tokio --example echo -- server 127.0.0.61:7/udp:9861 &
//! listening at 127.0.0.61:7/udp:9861
//! $ cargo run -p swiftwater --features tokio --example echo -- client 127.0.0.61:7/udp:9861 hello 'how are you?'
//! hello
//! how are you?
//! ```

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::thread;

use swiftwater::{Association, Listener, RecvError, SendInfo};

fn main() -> ExitCode {
    let arguments: Vec<String> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["server", address] => serve(address),
        ["client", address, messages @ ..] => ask(address, messages),
        _ => Err("usage: echo server ADDRESS | echo client ADDRESS MESSAGE...".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind(address)?;
    println!("listening at {}", listener.address());
    loop {
        let (association, peer) = listener.accept()?;
        thread::spawn(move || {
            if let Err(error) = echo(&association) {
                eprintln!("echo: {peer}: {error}");
            }
        });
    }
}

/// Sends each message back on its stream, until the peer shuts down.
fn echo(association: &Association) -> Result<(), Box<dyn Error>> {
    loop {
        match association.recv() {
            Ok(Some(message)) => {
                let info = SendInfo {
                    // The peer may have more outbound streams than this side.
                    stream: message.info.stream % association.streams_out().max(1),
                    ppid: message.info.ppid,
                    more: message.info.more,
                    ..SendInfo::default()
                };
                association.send_bytes(message.into_bytes(), &info)?;
            }
            Ok(None) => return Ok(()),
            // The association continues after a restart of the peer.
            Err(RecvError::Restarted(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn ask(address: &str, messages: &[&str]) -> Result<(), Box<dyn Error>> {
    let association = Association::connect(address)?;
    for message in messages {
        association.send(message.as_bytes())?;
    }
    for _ in messages {
        let answer = association.recv()?.ok_or("the server has shut down")?;
        println!("{}", String::from_utf8_lossy(&answer.to_vec()));
    }
    // Waits until the server has received everything; otherwise the server would wait for a process that is gone.
    association.close()?;
    Ok(())
}
