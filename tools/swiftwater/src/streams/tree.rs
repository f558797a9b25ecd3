//! Streams as trees: the head, the modules below it, and the driver.

use swiftwater_daemon::{PartStatus, QueueStatus, StreamStatus, Streams};

use crate::host::printable_process_name;
use crate::units::grouped;

/// Columns of a part: its name, its queues, its counters.
type Line = [String; 4];

pub(super) fn of(streams: &Streams) -> String {
    if streams.streams.is_empty() && streams.omitted == 0 {
        return "no association has a stream that you may see\n".to_owned();
    }
    let mut out = String::new();
    for stream in &streams.streams {
        out += &of_stream(stream);
    }
    if streams.omitted > 0 {
        out += &format!("{} more streams are not shown\n", grouped(streams.omitted as u64));
    }
    out
}

fn of_stream(stream: &StreamStatus) -> String {
    let local = stream.local.map_or("*:*".to_owned(), |local| local.to_string());
    let process = match printable_process_name(stream.process) {
        Some(name) => format!("{name} (pid {})", stream.process),
        None => format!("uid {}", stream.user),
    };
    let link = stream.link.as_ref().map_or(String::new(), |link| {
        let (messages, bytes) = (grouped(link.messages), grouped(link.bytes));
        format!("   splice with {}: {messages} messages passed on, {bytes} bytes\n", link.with)
    });
    let lines: Vec<Line> = stream.parts.iter().enumerate().map(|(depth, part)| line(depth, part)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut out = format!("{}  {local} -> {}  {process}\n{link}", stream.association, stream.peer);
    for [name, read, write, counts] in &lines {
        let text =
            format!("   {name:<0$}  {read:<1$}  {write:<2$}  {counts}", widths[0], widths[1], widths[2]);
        out += text.trim_end();
        out.push('\n');
    }
    out
}

fn line(depth: usize, part: &PartStatus) -> Line {
    let branch = match depth {
        0 => String::new(),
        depth => format!("{}`- ", "   ".repeat(depth - 1)),
    };
    let counts = part.counts.iter().map(|(what, count)| format!("{} {what}", grouped(*count)));
    [
        format!("{branch}{}", part.name),
        queue("Recv-Q", &part.read),
        queue("Send-Q", &part.write),
        counts.collect::<Vec<_>>().join(", "),
    ]
}

/// Formats a queue as `Send-Q 70,000/65,536 full`. A queue without marks has no service procedure.
fn queue(name: &str, queue: &QueueStatus) -> String {
    if queue.hiwat_bytes == 0 {
        return String::new();
    }
    let full = if queue.is_full { " full" } else { "" };
    format!("{name} {}/{}{full}", grouped(queue.bytes as u64), grouped(queue.hiwat_bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn parts_stand_below_each_other() {
        let expected = "\
5  192.0.2.1:7 -> 192.0.2.2:9  uid 1000
   splice with 7: 1,200 messages passed on, 34,000 bytes
   head        Recv-Q 0/65,536  Send-Q 0/65,536            1,200 messages written
   `- limit    Recv-Q 0/65,536  Send-Q 70,000/65,536 full
      `- sctp  Recv-Q 0/65,536  Send-Q 0/65,536            500 messages sent
";
        assert_eq!(of(&example()), expected);
    }

    #[test]
    fn no_streams_are_told_as_such() {
        let none = Streams { streams: Vec::new(), omitted: 0 };
        assert_eq!(of(&none), "no association has a stream that you may see\n");
    }
}
