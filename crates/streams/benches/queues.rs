//! Cost of each utility of queues and messages, in ns per call: the cheapest of many rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use streams::drivers::Nuls;
use streams::modules::{BufMod, NullMod};
use streams::{
    Chain, Executive, Flush, Message, Module, Q, Queue, QueueInfo, SendInfo, Which, allocb, copyb, dupb,
    esballoc,
};

const ROUNDS: usize = 50;
const CALLS: usize = 2000;
/// Number of normal messages that a message of another band passes.
const WAITING: usize = 10_000;

/// Prints the cost of one call of `f`, which makes `calls` of them.
fn report(name: &str, calls: usize, mut f: impl FnMut() -> Duration) {
    let best = (0..ROUNDS).map(|_| f()).min().unwrap_or_default();
    println!("{name:<44} {:>9.1}", best.as_nanos() as f64 / calls as f64);
}

fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

fn repeated(mut f: impl FnMut()) -> Duration {
    timed(|| (0..CALLS).for_each(|_| f()))
}

fn message() -> Message {
    Message::data(Bytes::from_static(&[7; 64]))
}

/// Returns two blocks, 32 bytes each.
fn chained() -> Message {
    Message::data([Bytes::from_static(&[7; 32]), Bytes::from_static(&[8; 32])].into_iter().collect::<Chain>())
}

fn queue(messages: usize) -> Queue {
    let mut q = Queue::new(QueueInfo::served(1 << 30, 1 << 20));
    for _ in 0..messages {
        let _ = q.putq(message());
    }
    q
}

fn main() {
    println!("{:<44} {:>9}", "utility", "ns");
    queues();
    priorities();
    messages();
    procedures();
}

fn queues() {
    report("putq, getq", CALLS, || {
        let mut q = queue(0);
        repeated(|| {
            let _ = q.putq(message());
            black_box(q.getq());
        })
    });
    report("putbq, getq", CALLS, || {
        let mut q = queue(10);
        repeated(|| {
            let _ = q.putbq(message());
            black_box(q.getq());
        })
    });
    report("insq, rmvq in the middle of 100", CALLS, || {
        let mut q = queue(100);
        repeated(|| {
            let _ = q.insq(50, message());
            black_box(q.rmvq(50));
        })
    });
    report("canput (bcanput), band 0", CALLS, || {
        let mut q = queue(10);
        repeated(|| {
            black_box(q.canput(black_box(0)));
        })
    });
    report("canput (bcanput), band 1", CALLS, || {
        let mut q = queue(10);
        let _ = q.putq(message().in_band(1));
        repeated(|| {
            black_box(q.canput(black_box(1)));
        })
    });
    report("strqset, strqget", CALLS, || {
        let mut q = queue(10);
        repeated(|| {
            q.set_marks(0, 1 << 20, 1 << 10);
            black_box(q.marks(0));
        })
    });
    report("qsize", CALLS, || {
        let q = queue(10);
        repeated(|| {
            black_box(black_box(&q).len());
        })
    });
    report("noenable, enableok", CALLS, || {
        let mut q = queue(0);
        repeated(|| {
            black_box(&mut q).noenable();
            black_box(&mut q).enableok();
        })
    });
    report("flushq of 2,000 messages, for each", CALLS, || {
        let mut q = queue(CALLS);
        timed(|| q.flushq(&Flush::READ, drop))
    });
    report("flushband of 1 among 2,000, for each", CALLS, || {
        let mut q = queue(CALLS);
        let _ = q.putq(message().in_band(3));
        timed(|| q.flushq(&Flush { band: Some(3), ..Flush::READ }, drop))
    });
}

fn priorities() {
    report("band 1 passes 10,000 normal ones, and getq", CALLS, || {
        let mut q = queue(WAITING);
        repeated(|| {
            let _ = q.putq(message().in_band(1));
            black_box(q.getq());
        })
    });
    report("high priority passes 10,000, and getq", CALLS, || {
        let mut q = queue(WAITING);
        repeated(|| {
            let _ = q.putq(Message::pc_proto(streams::Primitive::InfoReq));
            black_box(q.getq());
        })
    });
}

fn messages() {
    report("allocb of 64 bytes", CALLS, || {
        repeated(|| {
            black_box(allocb(&[7; 64]));
        })
    });
    report("esballoc", CALLS, || {
        repeated(|| {
            black_box(esballoc([7; 64]));
        })
    });
    let block = allocb(&[7; 64]);
    report("dupb", CALLS, || {
        repeated(|| {
            black_box(dupb(&block));
        })
    });
    report("copyb of 64 bytes", CALLS, || {
        repeated(|| {
            black_box(copyb(&block));
        })
    });
    let m = message();
    report("dupmsg", CALLS, || {
        repeated(|| {
            black_box(m.dupmsg());
        })
    });
    report("copymsg of 64 bytes", CALLS, || {
        repeated(|| {
            black_box(m.copymsg());
        })
    });
    report("linkb, unlinkb", CALLS, || {
        let mut m = chained();
        repeated(|| {
            m.linkb(Chain::from(Bytes::from_static(b"x")));
            black_box(m.unlinkb());
        })
    });
    report("pullupmsg of two blocks", CALLS, || {
        let mut all: Vec<Message> = (0..CALLS).map(|_| chained()).collect();
        timed(|| {
            for m in &mut all {
                black_box(m.pullupmsg(None));
            }
        })
    });
    report("adjmsg", CALLS, || {
        let mut all: Vec<Message> = (0..CALLS).map(|_| message()).collect();
        timed(|| {
            for m in &mut all {
                black_box(m.adjmsg(8));
            }
        })
    });
    report("msgdsize", CALLS, || {
        repeated(|| {
            black_box(black_box(&m).msgdsize());
        })
    });
}

/// Starts a timer for each message, and stops it.
struct Timing;

impl Module for Timing {
    fn name(&self) -> &str {
        "timing"
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        let timer = q.timeout(Duration::from_secs(1));
        black_box(q.untimeout(timer));
        q.putnext(m);
    }
}

/// Asks whether there is room before it sends a message on.
struct Asking;

impl Module for Asking {
    fn name(&self) -> &str {
        "asking"
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if q.canputnext(m.band) {
            q.putnext(m);
        }
    }
}

/// Measures the procedures of a stream, in one direction, against a plain write to a driver.
fn procedures() {
    let write = |modules: &dyn Fn() -> Vec<Box<dyn Module>>| {
        let mut executive = Executive::new(Instant::now());
        let driver = executive.add_driver("nuls", Box::new(Nuls));
        let s = executive.open(driver).expect("the driver opens");
        for module in modules() {
            executive.push(s, module).expect("the module is pushed");
        }
        move || {
            repeated(|| {
                executive
                    .write(s, Which::Only, SendInfo::default(), &[7; 64], Instant::now)
                    .expect("there is room");
                executive.at(Instant::now()).run();
            })
        }
    };
    report("write to a driver (M_DATA)", CALLS, write(&Vec::new));
    report("  the same, putnext of a null module", CALLS, write(&|| vec![Box::new(NullMod)]));
    report("  the same, canputnext and putnext", CALLS, write(&|| vec![Box::new(Asking)]));
    report("  the same, putq, qenable, service", CALLS, write(&|| vec![Box::new(BufMod::default())]));
    report("  the same, timeout and untimeout", CALLS, write(&|| vec![Box::new(Timing)]));
}
