//! Check of the laboratory.

use super::Finding;
use crate::lab::line::Attempt;

/// Program of the measurements by `sctp-sockets`.
pub(super) const IPERF3: &str = "iperf3";

/// Checks whether `swiftwater lab` can join two hosts by a line here, and whether it has all that its experiments use.
pub(super) fn laboratory(tried: Result<Attempt, String>, has_iperf3: bool) -> Finding {
    const CHECK: &str = "laboratory";
    let attempt = match tried {
        Ok(attempt) => attempt,
        Err(error) => {
            // Errors end with what to do.
            let (why, advice) = error.rsplit_once("; ").unwrap_or((&error, "`swiftwater lab` needs them"));
            return Finding::note(CHECK, format!("`swiftwater lab` has no hosts here: {why}"), advice);
        }
    };
    let iperf3 =
        format!("{IPERF3} is not installed: experiments run without sctp-sockets; install it for them");
    let restrictions: Vec<String> =
        attempt.restrictions.into_iter().chain((!has_iperf3).then_some(iperf3)).collect();
    let found = format!("two hosts can be joined by {} devices", attempt.device);
    if restrictions.is_empty() {
        return Finding::ok(CHECK, format!("{found}, with real-time priority; {IPERF3} is installed"));
    }
    Finding::note(CHECK, format!("{found}, with restrictions"), restrictions.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn attempt(restrictions: &[&str]) -> Attempt {
        let restrictions = restrictions.iter().map(|&one| one.to_owned()).collect();
        Attempt { device: "tun".into(), restrictions }
    }

    #[test]
    fn a_laboratory_that_cannot_be_made_is_a_note_with_the_advice_of_the_laboratory() {
        let error = "cannot run `ip link set lo up`: No such file or directory; install iproute2";
        let finding = laboratory(Err(error.into()), true);
        assert_eq!(finding.state, State::Note, "programs get SCTP sockets nevertheless");
        assert!(finding.found.ends_with("`ip link set lo up`: No such file or directory"), "{finding:?}");
        assert_eq!(finding.advice.as_deref(), Some("install iproute2"));
    }

    #[test]
    fn each_restriction_has_its_line() {
        assert_eq!(laboratory(Ok(attempt(&[])), true).state, State::Ok);
        let finding = laboratory(Ok(attempt(&["no priority; be root"])), false);
        let advice = finding.advice.expect("two restrictions");
        let lines: Vec<&str> = advice.lines().collect();
        assert!(lines.len() == 2 && lines[0] == "no priority; be root", "{advice}");
        assert!(lines[1].starts_with("iperf3 is not installed"), "{advice}");
    }
}
