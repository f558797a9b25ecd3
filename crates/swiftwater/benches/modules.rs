//! Cost of modules on a live association, and accuracy of the rate of `limit` and of the turns of its messages.
//!
//! Messages of 1 KB are sent over loopback. Rounds without a module and with each module alternate; a rate is that of the best
//! rounds, the third, since other programs only slow a round down. `limit` runs for 10 s; its rate is that of the received
//! messages. How late a message comes counts from its turn: at this rate, behind the message that came earliest; beside
//! that stands how late a thread that only sleeps wakes meanwhile, which is the share of the machine.

#![allow(missing_docs, reason = "a program")]

use std::time::{Duration, Instant};

use swiftwater::modules::{NullMod, Tap};
use swiftwater::{Association, Listener, Module, SendError};

const MESSAGE: [u8; 1024] = [7; 1024];
const ROUND: Duration = Duration::from_millis(100);
/// Many short rounds: some fall between the turns of other programs on the processors.
const ROUNDS: usize = 60;
const LIMIT: Duration = Duration::from_secs(10);
/// Rate and time of the messages whose turns are measured.
const TURNS_PER_SECOND: u32 = 200;
const TURNS_TIME: Duration = Duration::from_secs(10);
const LIMITS: [(&str, f64); 2] = [("bits=50M", 50e6), ("messages=1k", 1000.0 * 1024.0 * 8.0)];

type Make = fn() -> Box<dyn Module>;

fn main() {
    let listener = Listener::bind("127.0.0.1:0/udp:0").expect("a free port");
    let client = Association::connect(listener.address()).expect("it listens");
    let (server, _) = listener.accept().expect("it is there");
    println!("{:<12} {:>14} {:>8}", "module", "messages/s", "ratio");
    let kinds: [(&str, Make); 2] = [("nullmod", || Box::new(NullMod)), ("tap", || Box::new(tap()))];
    let mut without = Vec::new();
    let mut with: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        without.push(rate(&client, &server, ROUND));
        for ((_, make), rates) in kinds.iter().zip(&mut with) {
            client.stream().push(make()).expect("it is up");
            rates.push(rate(&client, &server, ROUND));
            client.stream().pop().expect("it was pushed");
        }
    }
    let without = third_best(&mut without);
    println!("{:<12} {without:>14.0}", "none");
    for ((name, _), rates) in kinds.iter().zip(&mut with) {
        let rate = third_best(rates);
        println!("{name:<12} {rate:>14.0} {:>8.3}", rate / without);
    }
    for (argument, wanted) in LIMITS {
        client.stream().push_named("limit", &[argument.to_owned()]).expect("it is up");
        // Skip the initial burst, which `limit` permits at once.
        rate(&client, &server, Duration::from_millis(200));
        let bits_per_s = rate(&client, &server, LIMIT) * 8.0 * MESSAGE.len() as f64;
        println!("limit {argument}: {bits_per_s:.0} bit/s, {:+.2} %", (bits_per_s / wanted - 1.0) * 100.0);
        client.stream().pop().expect("it was pushed");
        drain(&server);
    }
    lateness(&client, &server);
}

/// Prints how long after their turns messages arrive through `limit`.
fn lateness(client: &Association, server: &Association) {
    let limit = format!("messages={TURNS_PER_SECOND}");
    client.stream().push_named("limit", &[limit]).expect("it is up");
    let messages = TURNS_PER_SECOND * TURNS_TIME.as_secs() as u32;
    let (mut late, asleep) = std::thread::scope(|scope| {
        scope.spawn(|| (0..messages).for_each(|_| client.send(&MESSAGE).expect("it is up")));
        let sleeper = scope.spawn(oversleep);
        let begin = Instant::now();
        // Moved by a time that no message is ahead of its turn.
        let moved =
            |number: u32| TURNS_TIME + begin.elapsed() - Duration::from_secs(1) * number / TURNS_PER_SECOND;
        let late = |number: u32| server.recv().expect("it is up").map(|_| moved(number)).expect("a message");
        // The first ones are the burst that `limit` permits at once.
        let late: Vec<Duration> = (0..messages).map(late).skip(TURNS_PER_SECOND as usize / 10).collect();
        let earliest = late.iter().min().copied().unwrap_or_default();
        let late: Vec<Duration> = late.into_iter().map(|late| late - earliest).collect();
        (late, sleeper.join().expect("it sleeps"))
    });
    client.stream().pop().expect("it was pushed");
    for (what, times) in [("limit", &mut late), ("sleep", &mut { asleep })] {
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!("{what}: late by {:.2} ms (median), {:.2} (99 %), {:.2} (most)", at(0.5), at(0.99), at(1.0));
    }
}

/// Sleeps for 1 ms again and again; returns how much longer each sleep took.
fn oversleep() -> Vec<Duration> {
    let (begin, nap) = (Instant::now(), Duration::from_millis(1));
    let mut late = Vec::new();
    while begin.elapsed() < TURNS_TIME {
        let before = Instant::now();
        std::thread::sleep(nap);
        late.push(before.elapsed().saturating_sub(nap));
    }
    late
}

/// Returns a tap whose reader keeps up.
fn tap() -> Tap {
    let mut file = Vec::with_capacity(1 << 20);
    let sink = move |pieces: &[&[u8]]| {
        if file.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>() > file.capacity() {
            file.clear();
        }
        pieces.iter().for_each(|piece| file.extend_from_slice(piece));
        true
    };
    Tap::new(Box::new(sink), (Instant::now(), Duration::ZERO), (1, 2))
}

/// Returns the rate of received messages while the sender sends as fast as it can.
fn rate(client: &Association, server: &Association, time: Duration) -> f64 {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                match client.send_timeout(&MESSAGE, &Default::default(), left) {
                    Ok(()) | Err(SendError::TimedOut) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let (start, mut messages) = (Instant::now(), 0u64);
        while Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            messages += u64::from(server.recv_timeout(left).is_ok_and(|message| message.is_some()));
        }
        messages as f64 / start.elapsed().as_secs_f64()
    })
}

fn third_best(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() - 3]
}

/// Receives the messages in transit.
fn drain(server: &Association) {
    while server.recv_timeout(Duration::from_millis(200)).is_ok() {}
}
