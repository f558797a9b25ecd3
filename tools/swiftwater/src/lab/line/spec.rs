//! Paths as users write them: `30mbit,50ms,queue=400kB,loss=0.1%`.

use std::str::FromStr;
use std::time::Duration;

use netsim::{Jitter, Loss, PipeConfig, Reorder, Schedule};

/// Minimum size of a default queue, which otherwise holds the line's bandwidth-delay product of a round trip.
const QUEUE_BYTES_MIN: usize = 64_000;
/// Default MTU of a path.
const MTU_BYTES: usize = 1500;
/// Allowed MTUs: from the least of IPv6 to the largest of IPv4.
const MTU_RANGE: std::ops::RangeInclusive<usize> = 1280..=65_535;
/// Units of rates, of times and of bytes.
const RATE_UNITS: [(&str, f64); 4] = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
const TIME_UNITS: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
const SHARE_UNITS: [(&str, f64); 1] = [("%", 0.01)];
const BYTE_UNITS: [(&str, f64); 5] =
    [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("KiB", 1024.0), ("MiB", 1024.0 * 1024.0)];
const GRAMMAR: &str = "a path is such as 30mbit,50ms,queue=400kB,loss=0.1%";
/// Units of the words without a key.
const UNNAMED_UNITS: &str = "rates end in bit, kbit, mbit or gbit, and delays in us, ms or s";

/// A path, with both its directions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathSpec {
    /// The SPEC as the user wrote it.
    pub(crate) text: String,
    pub(crate) pipe: PipeConfig,
    pub(crate) mtu_bytes: usize,
}

impl Default for PathSpec {
    /// Returns a path without limits.
    fn default() -> Self {
        PathSpec { text: String::new(), pipe: PipeConfig::default(), mtu_bytes: MTU_BYTES }
    }
}

impl FromStr for PathSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pipe = PipeConfig::default();
        let (mut mtu_bytes, mut burst, mut keys) = (MTU_BYTES, None, Vec::new());
        for word in text.split(',').map(str::trim) {
            let (key, value) = word.split_once('=').unwrap_or_else(|| (unnamed_key(word), word));
            let wrong = || {
                let advice = match (correction(key, value), range(key)) {
                    _ if word.is_empty() => "a word is empty".to_owned(),
                    _ if word.starts_with("--") => "an option stands in place of a path".to_owned(),
                    _ if word.starts_with('-') => "neither a rate nor a delay is negative".to_owned(),
                    (Some(correction), _) => correction,
                    (None, Some(range)) => format!("{key} is {range}"),
                    (None, None) => format!("there is no key `{key}`"),
                };
                // The program prints the whole path before this.
                let word =
                    if word == text || word.is_empty() { String::new() } else { format!("`{word}`: ") };
                format!("{word}{advice}; {GRAMMAR}")
            };
            if keys.contains(&key) {
                return Err(format!("two words are for {key}; {GRAMMAR}"));
            }
            keys.push(key);
            let is_set = match key {
                "mtu" => {
                    mtu_bytes = value.parse().ok().filter(|mtu| MTU_RANGE.contains(mtu)).ok_or_else(wrong)?;
                    Some(())
                }
                "burst" => {
                    burst = value.parse().ok().filter(|packets| (1.0..=1e6).contains(packets));
                    burst.map(drop)
                }
                _ => set(&mut pipe, key, value),
            };
            is_set.ok_or_else(wrong)?;
        }
        if let (Some(packets), Loss::Random { probability }) = (burst, &pipe.loss) {
            // At least one good packet separates two bursts.
            let most = packets / (packets + 1.0);
            if *probability > most {
                return Err(format!(
                    "loss= is at most {:.4}% with burst={packets}: a packet arrives between two bursts; {GRAMMAR}",
                    (most * 1e6).floor() / 1e4
                ));
            }
            pipe.loss = Loss::bursts(*probability, packets);
        } else if burst.is_some() {
            return Err(format!("burst= is without loss=; {GRAMMAR}"));
        }
        if !keys.contains(&"queue") {
            pipe.queue_bytes = default_queue_bytes(&pipe);
        }
        Ok(PathSpec { text: text.to_owned(), pipe, mtu_bytes })
    }
}

impl PathSpec {
    /// Returns the SPEC with the size of its queue, which a user need not write.
    pub(crate) fn with_queue(&self) -> String {
        let is_written = self.text.split(',').any(|word| word.trim().starts_with("queue="));
        if is_written || self.pipe.queue_bytes == usize::MAX {
            self.text.clone()
        } else {
            format!("{},queue={}B", self.text, self.pipe.queue_bytes)
        }
    }
}

/// Returns the key of a word without a name: a rate, a delay, or the word itself, which is neither.
fn unnamed_key(word: &str) -> &str {
    match word {
        _ if !word.starts_with(|first: char| first.is_ascii_digit()) => word,
        _ if word.ends_with("bit") => "rate",
        _ => "delay",
    }
}

/// Returns advice about a value whose unit is missing, written differently or unknown; `None` for a value with another defect.
fn correction(key: &str, value: &str) -> Option<String> {
    let unit_at = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (digits, unit) = value.split_at(unit_at);
    let number: f64 = digits.parse().ok()?;
    let units: &[_] = match key {
        "queue" | "ecn" => &BYTE_UNITS,
        "rate" => &RATE_UNITS,
        "loss" | "duplicate" | "corrupt" => &SHARE_UNITS,
        "delay" | "jitter" => &TIME_UNITS,
        _ => return None,
    };
    if units.iter().any(|(name, _)| *name == unit) {
        return None;
    }
    let unit = unit.to_ascii_lowercase();
    match key {
        "rate" | "delay" if unit.is_empty() => {
            Some(format!("write {digits}mbit for a rate or {digits}ms for a delay"))
        }
        "rate" | "delay" if unit == "m" => {
            Some(format!("write {digits}mbit for a rate, or {digits}ms for milliseconds"))
        }
        "rate" | "delay" => match rate_prefix(&unit) {
            Some((prefix, name, true)) => Some(format!(
                "write {digits}{prefix}bit for {name}bits in a second, or {}{prefix}bit for {name}bytes",
                number * 8.0
            )),
            Some((prefix, name, false)) => {
                Some(format!("write {digits}{prefix}bit for {name}bits in a second"))
            }
            None => Some(match time_unit(&unit) {
                Some(unit) => format!("write {digits}{unit} for a time"),
                None => format!("`{unit}` is not a unit: {UNNAMED_UNITS}"),
            }),
        },
        "jitter" if unit.is_empty() => Some(format!("write {key}={digits}ms for milliseconds")),
        "queue" | "ecn" if ["kb", "mb", "kib", "mib", "b"].contains(&unit.as_str()) => {
            let upper = unit.replace("b", "B").replace("m", "M").replace("ki", "Ki");
            Some(format!("write {key}={digits}{upper} for bytes"))
        }
        "queue" | "ecn" if unit.is_empty() && number >= 1.0 => {
            let packets = if key == "queue" { format!(", or {key}={digits}packets") } else { String::new() };
            Some(format!("write {key}={digits}kB for kilobytes{packets}"))
        }
        "loss" | "duplicate" | "corrupt" if unit.is_empty() && number <= 100.0 => {
            Some(format!("write {key}={digits}% for a share in percent"))
        }
        _ => None,
    }
}

/// Returns the prefix of a lower-case unit of a rate, the name of the prefix, and whether the unit may stand for bytes.
fn rate_prefix(unit: &str) -> Option<(&'static str, &'static str, bool)> {
    let prefixes = [("k", "kilo"), ("m", "mega"), ("g", "giga"), ("", "")];
    let (prefix, name) = prefixes.into_iter().find(|(prefix, _)| unit.starts_with(prefix))?;
    match &unit[prefix.len()..] {
        "b" | "b/s" | "byte" | "bytes" | "bps" => Some((prefix, name, true)),
        "bit" | "bits" | "bit/s" | "bits/s" => Some((prefix, name, false)),
        _ => None,
    }
}

/// Returns our word for a lower-case unit of a time.
fn time_unit(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "us" | "µs" | "usec" | "usecs" => "us",
        "ms" | "msec" | "msecs" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        _ => return None,
    })
}

/// Returns the values that a key takes; `None` if there is no such key.
fn range(key: &str) -> Option<&'static str> {
    Some(match key {
        "rate" => "1bit to 100gbit",
        "delay" | "jitter" => "0s to 86400s",
        "queue" => "1B to 1024MiB, or a number of packets such as 50packets",
        "ecn" => "1B to 1024MiB",
        "loss" | "duplicate" | "corrupt" => "0% to 100%",
        "burst" => "1 to 1000000 packets",
        "reorder" => "0% to 100%, a slash and 0s to 86400s",
        "down" => "a time, a slash and a longer one, up to 86400s",
        "mtu" => "1280 to 65535",
        _ => return None,
    })
}

fn set(pipe: &mut PipeConfig, key: &str, value: &str) -> Option<()> {
    match key {
        "rate" => pipe.rate_bits_per_s = Some(rate(value)?),
        "delay" => pipe.delay = time(value)?,
        "queue" => match value.strip_suffix("packets") {
            Some(packets) => pipe.queue_packets = packets.parse().ok().filter(|packets| *packets > 0)?,
            None => pipe.queue_bytes = bytes(value)?,
        },
        "ecn" => pipe.mark_above_bytes = Some(bytes(value)?),
        "loss" => pipe.loss = Loss::Random { probability: share(value)? },
        "duplicate" => pipe.duplicate_probability = share(value)?,
        "corrupt" => pipe.corrupt_probability = share(value)?,
        "jitter" => pipe.jitter = Jitter::Uniform { max: time(value)?, may_reorder: false },
        "reorder" => {
            let (probability, by) = value.split_once('/')?;
            pipe.reorder = Reorder::Late { probability: share(probability)?, by: time(by)? };
        }
        "down" => {
            let (down, period) = value.split_once('/')?;
            let (down, period) = (time(down)?, time(period)?);
            let up = period.checked_sub(down).filter(|up| !up.is_zero())?;
            pipe.schedule = Schedule::Periodic { first_down: up, down, up };
        }
        _ => return None,
    }
    Some(())
}

/// Returns the default queue of a line.
fn default_queue_bytes(pipe: &PipeConfig) -> usize {
    let Some(rate) = pipe.rate_bits_per_s else { return usize::MAX };
    let product = rate as f64 / 8.0 * 2.0 * pipe.delay.as_secs_f64();
    (product as usize).max(QUEUE_BYTES_MIN)
}

/// Parses a number of at least zero with one of these units.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == '%')?;
    let (digits, unit) = text.split_at(split);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = digits.parse().ok()?;
    Some(number * factor).filter(|number| number.is_finite() && *number >= 0.0)
}

fn rate(text: &str) -> Option<u64> {
    let bits = number(text, &RATE_UNITS)?;
    Some(bits.round() as u64).filter(|bits| (1..=100_000_000_000).contains(bits))
}

fn time(text: &str) -> Option<Duration> {
    let seconds = number(text, &TIME_UNITS)?;
    Some(seconds).filter(|seconds| *seconds <= 86_400.0).map(Duration::from_secs_f64)
}

fn bytes(text: &str) -> Option<usize> {
    number(text, &BYTE_UNITS).map(|bytes| bytes as usize).filter(|bytes| (1..=1 << 30).contains(bytes))
}

fn share(text: &str) -> Option<f64> {
    number(text, &SHARE_UNITS).filter(|share| *share <= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_what_its_words_say() {
        let spec: PathSpec =
            "30mbit,50ms,queue=400kB,loss=0.1%,down=10s/20s,mtu=1400".parse().expect("a path");
        let ten = Duration::from_secs(10);
        let expected = PipeConfig {
            rate_bits_per_s: Some(30_000_000),
            delay: Duration::from_millis(50),
            queue_bytes: 400_000,
            loss: Loss::Random { probability: 0.001 },
            schedule: Schedule::Periodic { first_down: ten, down: ten, up: ten },
            ..PipeConfig::default()
        };
        assert_eq!((spec.pipe, spec.mtu_bytes), (expected, 1400));
        let bursts: PathSpec = "loss=1%,burst=4,reorder=2%/1.5ms,queue=50packets".parse().expect("a path");
        assert_eq!(bursts.pipe.loss, Loss::bursts(0.01, 4.0));
        assert_eq!(bursts.pipe.queue_packets, 50);
        let late = Reorder::Late { probability: 0.02, by: Duration::from_micros(1500) };
        assert_eq!(bursts.pipe.reorder, late);
    }

    #[test]
    fn a_queue_that_is_not_named_holds_a_bandwidth_delay_product() {
        let queue = |text: &str| text.parse::<PathSpec>().expect("a path").pipe.queue_bytes;
        assert_eq!(queue("100mbit,10ms"), 250_000);
        assert_eq!(queue("1mbit,1ms"), QUEUE_BYTES_MIN);
        assert_eq!(queue("5ms"), usize::MAX);
    }

    #[test]
    fn a_path_tells_the_queue_that_it_has() {
        let told = |text: &str| text.parse::<PathSpec>().expect("a path").with_queue();
        assert_eq!(told("100mbit,10ms"), "100mbit,10ms,queue=250000B");
        assert_eq!(told("5ms"), "5ms", "nothing waits without a rate");
        for written in ["30mbit,50ms, queue=400KiB", "1mbit,queue=50packets"] {
            assert_eq!(told(written), written);
        }
        let path: PathSpec = "100mbit,10ms".parse().expect("a path");
        assert_eq!(path.with_queue().parse::<PathSpec>().expect("a path").pipe, path.pipe);
    }

    #[test]
    fn a_path_has_one_word_for_a_key() {
        for (twice, key) in
            [("30mbit,10mbit", "rate"), ("delay=10ms,20ms", "delay"), ("queue=1kB,queue=2packets", "queue")]
        {
            let error = twice.parse::<PathSpec>().expect_err(twice);
            assert!(error.contains(&format!("two words are for {key}")), "{error}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_answered_with_the_range() {
        for (wrong, range) in [
            ("mtu=100", "mtu is 1280 to 65535"),
            ("loss=200%", "loss is 0% to 100%"),
            ("0mbit", "rate is 1bit to 100gbit"),
            ("down=30s/20s", "a slash and a longer one"),
            ("queue=0B", "queue is 1B"),
            ("queue=0", "queue is 1B"),
            ("jitter=-2ms", "jitter is 0s"),
            ("delay=90000s", "delay is 0s"),
            ("-5mbit", "neither a rate nor a delay is negative"),
            ("30mbit,-5ms", "`-5ms`: neither a rate nor a delay is negative"),
            ("--seed", "an option stands in place of a path"),
        ] {
            let error = wrong.parse::<PathSpec>().expect_err(wrong);
            assert!(error.contains(range), "{error}");
        }
        for (wrong, key) in [("colour=red", "colour"), ("fast", "fast")] {
            let error = wrong.parse::<PathSpec>().expect_err("there is none");
            assert!(error.contains(&format!("no key `{key}`")), "{error}");
        }
    }

    #[test]
    fn losses_that_bursts_of_this_length_do_not_reach_are_refused() {
        for (path, most) in [
            ("loss=90%,burst=4", "80.0000%"),
            ("burst=1,loss=60%", "50.0000%"),
            ("loss=100%,burst=2", "66.6666%"),
        ] {
            let error = path.parse::<PathSpec>().expect_err(path);
            assert!(error.contains(&format!("loss= is at most {most} with burst=")), "{error}");
        }
        for path in ["loss=80%,burst=4", "loss=50%,burst=1", "loss=66.6666%,burst=2", "loss=100%"] {
            path.parse::<PathSpec>().expect(path);
        }
    }

    #[test]
    fn a_unit_that_is_written_differently_is_answered_with_what_may_be_meant() {
        for (wrong, meant) in [
            ("30mb", "write 30mbit for megabits in a second, or 240mbit for megabytes;"),
            ("1.5Gbps", "write 1.5gbit for gigabits in a second, or 12gbit for gigabytes;"),
            ("30Mbit", "write 30mbit for megabits in a second;"),
            ("30mbit/s", "write 30mbit for megabits in a second;"),
            ("30", "write 30mbit for a rate or 30ms for a delay;"),
            ("50m", "write 50mbit for a rate, or 50ms for milliseconds;"),
            ("50msec", "write 50ms for a time;"),
            ("50S", "write 50s for a time;"),
            ("queue=400kb", "write queue=400kB for bytes;"),
            ("queue=400", "write queue=400kB for kilobytes, or queue=400packets;"),
            ("ecn=50KIB", "write ecn=50KiB for bytes;"),
            ("loss=0.1", "write loss=0.1% for a share in percent;"),
            ("jitter=2", "write jitter=2ms for milliseconds;"),
            (
                "30mbt",
                "`mbt` is not a unit: rates end in bit, kbit, mbit or gbit, and delays in us, ms or s;",
            ),
            ("5h", "`h` is not a unit: "),
        ] {
            let error = wrong.parse::<PathSpec>().expect_err(wrong);
            assert!(error.contains(meant), "{error}");
            let error = format!("mtu=1400,{wrong}").parse::<PathSpec>().expect_err(wrong);
            assert!(error.starts_with(&format!("`{wrong}`: ")) && error.contains(meant), "{error}");
        }
    }

    #[test]
    fn blanks_around_words_are_ignored() {
        assert_eq!(
            "30mbit, 50ms".parse::<PathSpec>().expect("a path").pipe,
            "30mbit,50ms".parse::<PathSpec>().expect("a path").pipe
        );
    }

    #[test]
    fn malformed_lines_are_named() {
        for wrong in [
            "",
            "fast",
            "30",
            "30mbit,,5ms",
            "0mbit",
            "-5ms",
            "loss=101%",
            "loss=5",
            "down=20s/10s",
            "queue=0B",
            "mtu=100",
            "burst=4",
            "burst=0,loss=1%",
            "colour=red",
            "1e300gbit",
            "nanms",
            "infs",
            "delay=2d",
            "50m",
            "reorder=1%",
        ] {
            let error = wrong.parse::<PathSpec>().expect_err(wrong);
            assert!(error.contains("30mbit,50ms"), "{error}");
        }
    }
}
