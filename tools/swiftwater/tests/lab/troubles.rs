//! Hosts that lack something, and wrong arguments: each is a sentence that says what to do, and nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use swiftwater_tests::tools;

use super::support::{
    Folder, NOBODY, SWIFTWATER, complaint, is_root, lab, lab_refused, number, output, possible, users,
};

#[test]
fn a_path_that_makes_no_sense_is_refused_before_anything_is_made() {
    let said = complaint(&mut lab(None, &["run", "--path", "30mbit,fast", "--", "true"]));
    assert!(said.contains("`fast`: there is no key `fast`; a path is such as"), "{said}");
    let said = complaint(&mut lab(None, &["shell", "--server"]));
    assert!(said.contains("not a shell of the laboratory"), "{said}");
    for live in [&["--out", "/nowhere"][..], &["--quick"], &["--repeat", "2"]] {
        let said = complaint(&mut lab(None, &[&["--virtual", "fairness", "--seconds", "1"], live].concat()));
        assert!(said.contains("cannot be used with --virtual") && said.contains(live[0]), "{said}");
    }
    for option in ["--plot", "--capture", "--qlog"] {
        let said = complaint(&mut lab(None, &["--live", "loopback", option, "/nowhere/file"]));
        assert!(said.contains(option) && said.contains("`swiftwater lab report DIR`"), "{said}");
    }
}

#[test]
fn a_case_that_does_not_exist_is_refused_with_the_names_of_those_that_do() {
    let cases: [(&[&str], &str); 4] = [
        (&["--live", "lossy", "--case", "nowhere"], "clean + 2 % lost, 64 to 16384 bytes (2 sizes)"),
        (&["--live", "all", "--case", "nowhere"], "swiftwater lab --live NAME --case 'nowhere' lists"),
        (&["--live", "sctplib", "--quick", "--case", "228.7"], "leave out --quick"),
        (&["--virtual", "sctplib", "--case", "nowhere"], "they are: `"),
    ];
    for (words, sentence) in cases {
        let (output, said) = output(&mut lab(None, words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(sentence) && output.stdout.is_empty(), "{words:?}: {said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn each_trouble_is_a_sentence_that_says_what_to_do() {
    if !possible(&["unshare"]) {
        return;
    }
    let five = ["--path", "1ms"].repeat(5);
    let cases: [(&[&str], &str); 6] = [
        (&["run", "--", "no-such-program"], "cannot run `no-such-program`"),
        (
            &["run", "--server", "no-such-program", "--", "true"],
            "has ended before it had a socket open, with status 127",
        ),
        (
            &["run", "--server", "exit 3", "--", "true"],
            "has ended before it had a socket open, with status 3",
        ),
        (&["check", "--path", "100gbit", "--seconds", "0.2"], "Mbit/s on this host"),
        (&["check", "--tcp", "--path", "30mbit,50ms"], "add loss=0.1%"),
        (
            &[&["run"], &five[..], &["--", "true"]].concat(),
            "there are 5 paths, and an emulator has at most 4; leave",
        ),
    ];
    for (words, sentence) in cases {
        let (output, said) = output(&mut lab(None, words));
        // A program that is not there has the status that shells report of it.
        let status = match words.last() {
            Some(&"no-such-program") => 127,
            _ if words.len() > five.len() || words.contains(&"--tcp") => 2,
            _ => 1,
        };
        assert!(output.status.code() == Some(status) && said.contains(sentence), "{words:?}: {said}");
        assert!(words.contains(&"check") || output.stdout.is_empty(), "{words:?}: an empty table");
    }
    let said = complaint(lab(None, &["run", "--", "/bin/true"]).env("PATH", "/nowhere"));
    assert!(said.contains("cannot run `ip link") && said.contains("install iproute2"), "{said}");
    let mut refused = Command::new("unshare");
    let line = format!("echo 0 >/proc/sys/user/max_net_namespaces && exec {SWIFTWATER} lab run -- true");
    let said = complaint(refused.args(["--user", "--map-root-user", "sh", "-c", &line]));
    assert!(said.contains("cannot make namespaces") && said.contains("user.max_net_namespaces"), "{said}");
    let (output, said) = self::output(&mut lab(None, &["run", "--", "/etc/passwd"]));
    assert!(output.status.code() == Some(126) && said.contains("may this user execute it"), "{said}");
    let said = complaint(lab(None, &["shell"]).env("SHELL", "/nowhere"));
    assert!(said.contains("cannot run `/nowhere`") && said.contains("install it"), "{said}");
    let said = complaint(&mut lab(None, &["run", "--json=/dev/full", "--", "true"]));
    assert!(said.contains("/dev/full"), "{said}");
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_full_disk_is_a_sentence_and_the_table_is_printed_all_the_same() {
    if !possible(&["unshare", "mount"]) {
        return;
    }
    let folder = Folder::new("full");
    let place = folder.0.display();
    // There is no room for results, traces and the manifest.
    let line = format!(
        "mount -t tmpfs -o size=8k none {place} && exec {SWIFTWATER} lab --live coexistence --case 'cubic, 1 + 1' \
         --seconds 0.5 --repeat 1 --out {place}/out"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &line]).stdin(Stdio::null());
    let (output, said) = output(&mut command);
    assert!(
        !output.status.success() && said.contains("No space left") && said.contains("choose another"),
        "{said}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("sctp-stream"), "{said}");
}

#[test]
#[ignore = "needs root and setpriv: ./test --all"]
fn a_root_without_capabilities_is_told_that_it_cannot_make_namespaces() {
    let Some(setpriv) = tools::program("setpriv") else { return };
    if !is_root() {
        return tools::skip("only root is root without capabilities");
    }
    let powerless = |words: &[&str]| {
        let mut command = Command::new(&setpriv);
        command.args(["--bounding-set=-all", "--inh-caps=-all", SWIFTWATER]).args(words).stdin(Stdio::null());
        command
    };
    let said = complaint(&mut powerless(&["lab", "run", "--", "true"]));
    assert!(said.contains("CAP_SYS_ADMIN") && !said.contains("as root"), "{said}");
    let (output, said) = output(&mut powerless(&["doctor", "--json"]));
    let checks: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let check = checks.iter().find(|row| row["check"] == "user-namespaces").expect("a check");
    assert!(check["state"] != "ok", "{check}, {said}");
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_host_without_devices_or_namespaces_is_told_so() {
    if !possible(&["python3"]) {
        return;
    }
    let words = ["run", "--", "true"];
    // A user without TUN has veth.
    for user in users() {
        let (output, said) = output(&mut lab_refused(user, "tun", &words));
        assert!(output.status.success() && said.contains("emulator (veth)"), "{said}");
        let said = complaint(&mut lab_refused(user, "network-namespaces", &words));
        assert!(said.contains("cannot make namespaces") && said.contains("AppArmor"), "{said}");
        let is_root = is_root() && user.is_none();
        assert_eq!(said.contains("as root"), !is_root, "{said}");
        let said = complaint(&mut lab_refused(user, "tun", &["run", "--device", "tun", "--", "true"]));
        assert!(said.contains("TUN device") && said.contains("--device veth"), "{said}");
    }
    let folder = Folder::new("no-device");
    let ip = tools::program("ip").expect("it is installed");
    write_program(
        &folder,
        "ip",
        &format!(
            "case \"$*\" in *veth*) echo 'Unknown device type' >&2; exit 2;; esac\nexec {} \"$@\"\n",
            ip.display()
        ),
    );
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").expect("a path"));
    for user in users() {
        let said = complaint(lab_refused(user, "tun", &words).env("PATH", &path));
        assert!(said.contains("no device for a line") && said.contains("Unknown device type"), "{said}");
        assert!(said.contains("modprobe tun"), "{said}");
    }
    if is_root() {
        let said = complaint(&mut lab_refused(Some(NOBODY), "user-namespaces", &words));
        assert!(said.contains("allowed to make a user namespace"), "{said}");
        assert!(
            said.contains("sysctl user.max_user_namespaces") && said.contains("apparmor_restrict"),
            "{said}"
        );
        let live = ["--live", "lossy", "--quick", "--case", "sctp-message"];
        let said = complaint(&mut lab_refused(Some(NOBODY), "user-namespaces", &live));
        assert!(said.contains("or try --virtual or --live loopback"), "{said}");
    }
}

/// Writes a program for the shell.
pub(super) fn write_program(folder: &Folder, name: &str, text: &str) {
    let path = folder.file(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_transport_that_the_kernel_lacks_is_left_out_and_named_with_what_the_namespace_forbids() {
    if !possible(&["python3"]) {
        return;
    }
    let folder = Folder::new("lacking");
    let out = folder.file("out");
    let words =
        ["--live", "asymmetric-rate", "--case", "64 bytes", "--seconds", "0.2", "--repeat", "1", "--out"];
    let words = [&words[..], &[out.to_str().expect("ours")]].concat();
    let (output, said) = output(&mut lab_refused(None, "mptcp,bbr,real-time,large-buffers", &words));
    assert!(output.status.success(), "what the kernel lacks is no failure: {said}");
    for sentence in [
        "without tcp-bbr: the kernel does not give TCP the congestion control `bbr`",
        "without mptcp: the kernel has no MPTCP",
        "net.core.* cannot be changed in this namespace: socket buffers have at most",
        "real-time priority is not permitted",
    ] {
        assert_eq!(said.matches(sentence).count(), 1, "{sentence}: {said}");
    }
    assert!(!said.contains("left out:"), "nothing was tried in vain: {said}");
    let read = |name: &str| fs::read_to_string(out.join(name)).expect("written");
    let rows: Vec<Value> = serde_json::from_str(&read("results.json")).expect("JSON");
    let transports: Vec<_> = rows.iter().filter_map(|row| row["transport"].as_str()).collect();
    let expected = ["tcp-cubic", "tcp-reno", "sctp-message", "sctp-stream", "sctp-message", "sctp-stream"];
    assert_eq!(transports, expected);
    let manifest: Value = serde_json::from_str(&read("manifest.json")).expect("JSON");
    assert_eq!(
        (manifest["limits"].as_array().map(Vec::len), manifest["left_out"].as_array().map(Vec::len)),
        (Some(2), Some(2))
    );
    let (output, said) = self::output(&mut lab(None, &["report", out.to_str().expect("ours")]));
    assert!(output.status.success(), "{said}");
    let page = read("report.html");
    assert!(
        page.contains("<dt>left out</dt><dd>without mptcp: ")
            && page.contains("<dt>limit</dt><dd>net.core.*"),
        "{page}"
    );
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_selection_of_which_the_kernel_has_nothing_fails() {
    if !possible(&["python3"]) {
        return;
    }
    let words = ["--live", "failover", "--quick", "--case", "mptcp", "--json"];
    let (output, said) = output(&mut lab_refused(None, "mptcp", &words));
    assert!(output.status.code() == Some(1) && said.contains("nothing was measured"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[]\n");
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn laboratories_side_by_side_and_within_each_other_do_not_meet() {
    if !possible(&["unshare"]) {
        return;
    }
    for user in users() {
        for device in ["auto", "veth"] {
            // The names of the inner laboratory's interfaces are in use around it.
            let inner =
                ["run", "--device", device, "--", SWIFTWATER, "lab", "run", "--device", device, "--", "true"];
            let line = format!(
                "{SWIFTWATER} lab run --device {device} -- sleep 1 & {SWIFTWATER} lab {}; wait $!",
                inner.join(" ")
            );
            let around = "ip link add e0 type veth peer name p0; ";
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--net", "sh", "-ec", &format!("{around}{line}")]);
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            let (output, said) = output(command.stdin(Stdio::null()));
            assert!(output.status.success(), "{user:?}, {device}: {said}");
            assert_eq!(said.matches("\nemulator (").count(), 3, "{user:?}, {device}: {said}");
        }
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_laboratory_within_a_laboratory_has_processes_of_its_own() {
    if !possible(&[]) {
        return;
    }
    let own = "readlink /proc/self/ns/pid";
    let line = format!("{own}; {SWIFTWATER} lab run -- {own}");
    for user in users() {
        let (output, said) = output(&mut lab(user, &["run", "--", "sh", "-c", &line]));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.len() == 2 && lines[0] != lines[1], "{user:?}: {told}, {said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_with_a_long_delay_is_measured() {
    if !possible(&[]) {
        return;
    }
    let words = ["check", "--path", "10mbit,700ms", "--seconds", "0.5", "--json"];
    let (output, said) = output(&mut lab(None, &words));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    for row in rows.iter().filter(|row| row["load"] == "udp") {
        assert!(number(row, "delay_ms_p50") >= 700.0 && number(row, "bits_per_s") > 1e6, "{row}: {said}");
    }
    assert!(said.contains("1 path: about 8 s"), "{said}");
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_the_experiment() {
    let folder = Folder::new("unwritable");
    let nowhere = folder.file("missing/page");
    for option in ["--plot", "--capture", "--qlog"] {
        let words = ["--virtual", "tail-loss", option, nowhere.to_str().expect("ours")];
        let (output, said) = output(&mut lab(None, &words));
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{option}: the experiment has run: {said}"
        );
        assert!(said.contains("missing/page") && said.contains("choose another place"), "{option}: {said}");
    }
    let page = folder.file("page.html");
    let words = ["--virtual", "fairness", "--case", "nowhere", "--plot", page.to_str().expect("ours")];
    complaint(&mut lab(None, &words));
    assert!(!page.exists(), "nothing is left of a page without results");
}
