//! Many short messages, sent and received through handles that take many in a call: a client reports the readings of sensors,
//! and the server answers with their number and sum.
//!
//! ```console
//! $ cargo run -p swiftwater --features tokio --example readings -- server 127.0.0.69:7/udp:9869 &
//! listening at 127.0.0.69:7/udp:9869
//! $ cargo run -p swiftwater --features tokio --example readings -- client 127.0.0.69:7/udp:9869 100000
//! 100000 readings, sum 4999950000
//! ```

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::thread;

use swiftwater::{Association, Listener, SendInfo};

/// The payload protocol identifier of a reading: 8 bytes in network byte order.
const READING: u32 = 1;
/// The payload protocol identifier of the request for the sum of the readings before it.
const SUM: u32 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["server", address] => serve(address),
        ["client", address, count] => report(address, count),
        _ => Err("usage: readings server ADDRESS | readings client ADDRESS COUNT".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("readings: {error}");
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
            if let Err(error) = add_up(&association) {
                eprintln!("readings: {peer}: {error}");
            }
        });
    }
}

/// Adds up the readings of a client until it shuts down.
fn add_up(association: &Association) -> Result<(), Box<dyn Error>> {
    let (mut count, mut sum) = (0_u64, 0_u64);
    // The reader takes all messages of a packet in one call, and lends them one by one without a copy.
    let mut reader = association.reader();
    while let Some(message) = reader.recv()? {
        match message.info.ppid {
            READING => {
                // A message this short has arrived in one piece.
                let bytes = message.as_slice().unwrap_or_default();
                sum = sum.wrapping_add(u64::from_be_bytes(bytes.try_into()?));
                count += 1;
            }
            SUM => association.send(format!("{count} readings, sum {sum}").as_bytes())?,
            other => return Err(format!("unknown payload protocol identifier {other}").into()),
        }
    }
    Ok(())
}

fn report(address: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let count: u64 = count.parse()?;
    let association = Association::connect(address)?;
    // The sender collects messages, and hands many over in one call.
    let mut sender = association.sender();
    let reading = SendInfo { ppid: READING, ..SendInfo::default() };
    for value in 0..count {
        sender.feed_with(&value.to_be_bytes(), &reading)?;
    }
    sender.feed_with(b"sum", &SendInfo { ppid: SUM, ..SendInfo::default() })?;
    // What a sender has collected waits for more; a program that now waits for an answer must send it.
    sender.flush()?;

    let answer = association.recv()?.ok_or("the server has shut down")?;
    println!("{}", String::from_utf8_lossy(&answer.to_vec()));
    association.close()?;
    Ok(())
}
