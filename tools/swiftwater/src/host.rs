//! This machine, and the processors and priorities of processes on it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{Gid, Pid, Uid, setgid, setgroups, setuid};
use thiserror::Error;

/// The commit from which a release build was made; `None` outside of the repository.
pub(crate) const COMMIT: Option<&str> = option_env!("SWIFTWATER_COMMIT");

/// Load of other programs, in processors, from which figures are not to be compared.
pub(crate) const OTHERS_BUSY_MAX: f64 = 0.15;

/// Error of a difference of idle times: `/proc/stat` has two of them, in steps of 10 ms each.
const IDLE_RESOLUTION: Duration = Duration::from_millis(20);

/// Returns the numbers of the processors that this process may use.
pub(crate) fn allowed_processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return vec![0] };
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect()
}

/// Returns a number that no other program can guess.
pub(crate) fn random() -> u64 {
    // The keys of the hash are random.
    RandomState::new().build_hasher().finish()
}

/// Pins this process to the processors. Later threads inherit that, so call it first.
pub(crate) fn pin_to(processors: &[usize]) -> Result<(), nix::Error> {
    let mut set = CpuSet::new();
    for &cpu in processors {
        set.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Moves this process's nice value as near to `nice` as it is allowed, and returns the result.
pub(crate) fn renice(nice: i32) -> i32 {
    let current = current_nice();
    let step = if nice < current { 1 } else { -1 };
    let mut wish = nice;
    while wish != current && rustix::process::setpriority_process(None, wish).is_err() {
        wish += step;
    }
    current_nice()
}

/// Switches this process to another user, without privileges.
pub(crate) fn become_user(user: u32) -> Result<(), nix::Error> {
    setgroups(&[])?;
    setgid(Gid::from_raw(user))?;
    setuid(Uid::from_raw(user))
}

/// Returns this process's nice value: -20 is the highest priority, 19 the lowest.
pub(crate) fn current_nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Returns the processor time that this process has used so far, in user and kernel mode.
pub(crate) fn processor_time() -> Duration {
    time_of(UsageWho::RUSAGE_SELF)
}

fn time_of(who: UsageWho) -> Duration {
    let Ok(usage) = getrusage(who) else { return Duration::ZERO };
    let (user, system) = (usage.user_time(), usage.system_time());
    let micros = (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Returns the processor time of all children that were waited for.
pub(crate) fn processor_time_of_children() -> Duration {
    time_of(UsageWho::RUSAGE_CHILDREN)
}

/// The work of the processors of this system until a moment.
#[derive(Clone, Copy, Debug)]
struct Load {
    at: Instant,
    processors: usize,
    /// Time that they were idle together, waits for disks included.
    idle: Duration,
    /// Processor time of this program and of its children that were waited for.
    own: Duration,
}

impl Load {
    /// Returns the load until now; `None` if the system does not tell.
    fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let (idle, processors) = idle_time(&text)?;
        Some(Load {
            at: Instant::now(),
            processors,
            idle,
            own: processor_time() + processor_time_of_children(),
        })
    }

    /// Returns the number of processors that others kept busy from another load on; `None` if it is unknown, as when they would
    /// have been less than idle. The system samples the busy time, but not the idle one, so that is the difference. It includes
    /// time that another guest of the same host took.
    fn others_busy_since(&self, before: &Load) -> Option<f64> {
        let elapsed_s = self.at.saturating_duration_since(before.at).as_secs_f64();
        let since = |time: fn(&Load) -> Duration| time(self).as_secs_f64() - time(before).as_secs_f64();
        let others_s = elapsed_s * self.processors as f64 - since(|load| load.idle) - since(|load| load.own);
        let is_known = elapsed_s > 0.0
            && self.processors == before.processors
            && others_s > -IDLE_RESOLUTION.as_secs_f64();
        is_known.then(|| others_s.max(0.0) / elapsed_s)
    }
}

/// Returns the idle time of all processors together, and their number, from the text of `/proc/stat`.
fn idle_time(stat: &str) -> Option<(Duration, usize)> {
    const TICKS_PER_S: u64 = 100;
    let mut lines = stat.lines().take_while(|line| line.starts_with("cpu"));
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal.
    let mut fields = lines.next()?.split_whitespace().skip(4);
    let idle: u64 = fields.next()?.parse().ok()?;
    let waits: u64 = fields.next()?.parse().ok()?;
    Some((Duration::from_millis((idle + waits) * 1000 / TICKS_PER_S), lines.count()))
}

/// Measures how busy other programs keep the processors.
#[derive(Debug)]
pub(crate) struct OthersBusy(Option<Load>);

impl OthersBusy {
    pub(crate) fn begin() -> Self {
        OthersBusy(Load::now())
    }

    /// Returns the number of processors that other programs than this one and its finished children kept busy since the begin, if
    /// it is known.
    pub(crate) fn processors(&self) -> Option<f64> {
        Load::now()?.others_busy_since(self.0.as_ref()?)
    }

    /// Returns the sentence of [`busy_sentence`] about the time since the begin.
    pub(crate) fn sentence(&self) -> Option<String> {
        self.processors().and_then(busy_sentence)
    }
}

/// Returns a sentence about the processors that other programs kept busy meanwhile, if that was too many to ignore.
pub(crate) fn busy_sentence(processors: f64) -> Option<String> {
    busy_advice(processors)
        .map(|advice| format!("other programs kept {processors:.1} processors busy meanwhile: {advice}"))
}

/// Returns what to do if other programs kept so many processors busy, if they are too many to ignore.
pub(crate) fn busy_advice(processors: f64) -> Option<&'static str> {
    (processors >= OTHERS_BUSY_MAX)
        .then_some("compare nothing before you have repeated this on a quiet machine")
}

/// Returns the release of the running kernel.
pub(crate) fn kernel() -> String {
    first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into())
}

/// Returns the model of the first processor.
pub(crate) fn processor_model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.into())
}

/// Error of a host whose loopback interface is down.
#[derive(Clone, Copy, Debug, Error)]
#[error(
    "the loopback interface is down, so programs of this host do not reach each other; run `ip link set lo up` as root"
)]
pub(crate) struct LoopbackDown;

/// Checks that programs of this host reach each other over loopback.
pub(crate) fn check_loopback() -> Result<(), LoopbackDown> {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    // Sends nothing, but asks for the route.
    let reached = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| socket.connect(any_port));
    match reached {
        Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => Err(LoopbackDown),
        _ => Ok(()),
    }
}

/// Returns the largest packet of the loopback device.
pub(crate) fn loopback_packet_bytes() -> usize {
    first_line("/sys/class/net/lo/mtu").and_then(|text| text.parse().ok()).unwrap_or(65_536)
}

/// Returns the time of day, UTC, in the format of RFC 3339.
pub(crate) fn now_rfc3339() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// Returns the name of a process, if it still exists.
pub(crate) fn process_name(process: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the name of a process, if it still exists, with escapes for control characters: a program chooses its name, which
/// must not reach a terminal as it is.
pub(crate) fn printable_process_name(process: i32) -> Option<String> {
    process_name(process).map(|name| name.escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn control_characters_in_the_name_of_a_process_are_escaped() {
        let script = r"printf 'a\033[31m\nb' >/proc/$$/comm && echo named && read -r _";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("it has named itself");
        let name = printable_process_name(child.id() as i32);
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!((line.as_str(), name.as_deref()), ("named\n", Some(r"a\u{1b}[31m\nb")));
    }

    #[test]
    fn a_process_has_a_processor() {
        assert!(!allowed_processors().is_empty());
        assert!(loopback_packet_bytes() >= 1500);
        assert!(!kernel().is_empty() && !processor_model().is_empty());
    }

    #[test]
    fn others_have_kept_busy_what_was_neither_idle_nor_ours() {
        let at = Instant::now();
        let load = |ms: u64, processors, idle_ms, own_ms| Load {
            at: at + Duration::from_millis(ms),
            processors,
            idle: Duration::from_millis(idle_ms),
            own: Duration::from_millis(own_ms),
        };
        let since_begin = |until: Load| until.others_busy_since(&load(0, 2, 5_000, 100));
        assert_eq!(since_begin(load(1_000, 2, 6_000, 600)), Some(0.5));
        assert_eq!(since_begin(load(1_000, 2, 6_010, 1_100)), Some(0.0), "within what the system tells");
        assert_eq!(since_begin(load(1_000, 2, 6_500, 1_100)), None, "more than there was");
        assert_eq!(since_begin(load(1_000, 3, 6_000, 600)), None, "a processor was added");
        assert_eq!(since_begin(load(0, 2, 5_000, 100)), None, "no time has passed");
    }

    #[test]
    fn idle_time_is_that_of_all_processors_with_waits_for_disks() {
        let stat =
            "cpu  1 2 3 400 50 6 7 8 0 0\ncpu0 0 0 0 200 50 0 0 0 0 0\ncpu1 1 2 3 200 0 6 7 8 0 0\nintr 5\n";
        assert_eq!(idle_time(stat), Some((Duration::from_millis(4_500), 2)));
        assert_eq!(idle_time("cpu  1 2 3\n"), None);
        assert!(Load::now().is_some_and(|load| load.processors > 0 && load.idle > Duration::ZERO));
    }

    #[test]
    fn asking_for_the_priority_one_has_always_works() {
        assert_eq!(renice(current_nice()), current_nice());
    }
}
