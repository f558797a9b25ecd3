//! A server for tokio: a task for each association, and an orderly end on SIGINT.
//!
//! ```console
//! $ cargo run -p swiftwater --features tokio --example tokio_server -- 127.0.0.67:7/udp:9867 &
//! listening at 127.0.0.67:7/udp:9867
//! $ cargo run -p swiftwater --features tokio --example echo -- client 127.0.0.67:7/udp:9867 hello
//! HELLO
//! ```

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use swiftwater::SendInfo;
use swiftwater::tokio::{Association, Listener};

/// A client that sends nothing for this time is disconnected.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Time limit for the open associations to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match env::args_os().nth(1) {
        Some(address) => serve(&address.to_string_lossy()).await,
        None => Err("usage: tokio_server ADDRESS".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio_server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind(address).await?;
    println!("listening at {}", listener.address());
    // One future for all turns of the loop: a new one would not see a signal that came before it was polled.
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let (association, peer) = tokio::select! {
            accepted = listener.accept() => accepted?,
            interrupted = &mut interrupted => break interrupted?,
        };
        tokio::spawn(async move {
            if let Err(error) = answer(&association).await {
                eprintln!("tokio_server: {peer}: {error}");
            }
        });
    }
    // The kernel does not tell peers that the process is gone: this call does, and delivers everything sent before.
    let stack = listener.stack();
    drop(listener);
    stack.close(CLOSE_WITHIN, "the server ends").await;
    Ok(())
}

/// Answers each message with the same text in capitals.
async fn answer(association: &Association) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        // Every call may be cancelled: no message is lost between two calls.
        let Ok(received) = tokio::time::timeout(IDLE_MAX, association.recv()).await else {
            association.abort("idle for too long");
            return Ok(());
        };
        let Some(message) = received? else { return Ok(()) };
        let text = message.to_vec().to_ascii_uppercase();
        // A long message comes, and goes back, in parts.
        let info = SendInfo { more: message.info.more, ..SendInfo::default() };
        association.send_bytes(text.into(), &info).await?;
    }
}
