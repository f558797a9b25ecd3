//! Checks of the kernel: its version, its features, its permissions.

use swiftwater_daemon::OldKernel;

use super::Finding;
use super::files::Files;
use crate::sockets::DEFAULT_PORT;

/// Folders of files that can forbid modules.
const MODPROBE_FOLDERS: [&str; 4] =
    ["etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "usr/local/lib/modprobe.d"];

/// Checks whether the daemon can tell sockets apart.
pub(super) fn release(files: &Files) -> Finding {
    const CHECK: &str = "kernel";
    let Some(release) = files.read("proc/sys/kernel/osrelease") else {
        return Finding::fails(
            CHECK,
            "/proc is missing, which a daemon needs",
            "mount it: `mount -t proc proc /proc`",
        );
    };
    match OldKernel::check(release.trim()) {
        Ok(()) => Finding::ok(CHECK, format!("Linux {}", release.trim())),
        Err(error) => Finding::fails(CHECK, error.to_string(), "boot a newer kernel"),
    }
}

/// Checks for the kernel's SCTP. Opening a socket would load it, so the check only looks for it.
pub(super) fn sctp(files: &Files) -> Finding {
    const CHECK: &str = "kernel-sctp";
    if files.exists("proc/net/sctp") {
        return loaded(CHECK, files.number("proc/sys/net/sctp/udp_port"));
    }
    let release = files.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let modules = files.read(&format!("lib/modules/{release}/modules.dep")).unwrap_or_default();
    let is_there = modules.lines().any(|line| {
        let (file, _) = line.split_once(':').unwrap_or((line, ""));
        file.rsplit('/').next().is_some_and(|name| name.starts_with("sctp.ko"))
    });
    match (is_there, forbidden_by(files)) {
        (false, _) => Finding::ok(CHECK, format!("none in this kernel ({release}); none is needed")),
        (true, Some(file)) => {
            Finding::ok(CHECK, format!("a module, which {file} forbids to load; none is needed"))
        }
        (true, None) => Finding::ok(CHECK, "a module, which is not loaded; none is needed"),
    }
}

fn loaded(check: &'static str, udp_port: Option<u64>) -> Finding {
    if udp_port == Some(DEFAULT_PORT.into()) {
        return Finding::note(
            check,
            format!("loaded, and it holds UDP port {DEFAULT_PORT}"),
            "`sysctl -w net.sctp.udp_port=0` gives the port to Swiftwater; or `swiftwater daemon --udp-port PORT`, here and at every peer",
        );
    }
    Finding::note(
        check,
        "loaded; programs under `swiftwater run` do not use it",
        "for `--link raw` unload it (`rmmod sctp`): it answers packets of associations that are not its own with ABORT",
    )
}

/// Returns the file that forbids loading the module.
fn forbidden_by(files: &Files) -> Option<String> {
    let lines = MODPROBE_FOLDERS.iter().flat_map(|folder| files.lines_under(folder));
    let forbids = |line: &str| {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("blacklist"), Some("sctp"), _) => true,
            (Some("install"), Some("sctp"), Some(command)) => {
                command.ends_with("/true") || command.ends_with("/false")
            }
            _ => false,
        }
    };
    lines.into_iter().find(|(_, line)| forbids(line)).map(|(file, _)| file.display().to_string())
}

/// Checks whether an unprivileged process may have a network namespace of its own, as rootless containers do.
pub(super) fn user_namespaces(files: &Files, tried: Result<(), String>) -> Finding {
    const CHECK: &str = "user-namespaces";
    let Err(error) = tried else {
        return Finding::ok(CHECK, "a process without privileges may have a network of its own");
    };
    let is = |name: &str, value| files.number(&format!("proc/sys/{name}")) == Some(value);
    let advice = if is("kernel/unprivileged_userns_clone", 0) {
        "`sysctl -w kernel.unprivileged_userns_clone=1` allows them"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", 1) {
        "AppArmor restricts them: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or a profile for the program"
    } else if is("user/max_user_namespaces", 0) {
        "`sysctl -w user.max_user_namespaces=1000` allows them"
    } else {
        "most likely a container's filter of system calls, or a chroot, forbids them"
    };
    let advice = format!(
        "only the laboratory, `bench attack` and containers need them, and only without root; {advice}"
    );
    Finding::note(CHECK, format!("private networks need privileges here: {error}"), advice)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "6.1.0\n");
    const MODULES: (&str, &str) =
        ("lib/modules/6.1.0/modules.dep", "kernel/a.ko:\nkernel/net/sctp/sctp.ko.xz: kernel/a.ko\n");

    #[test]
    fn a_missing_proc_is_not_taken_for_an_old_kernel() {
        let finding = release(&Files::with("no-proc", &[]));
        assert!(finding.state == State::Fails && finding.found.contains("/proc is missing"), "{finding:?}");
        let finding = release(&Files::with("old", &[("proc/sys/kernel/osrelease", "5.3.0\n")]));
        assert!(finding.advice.is_some_and(|advice| advice.contains("newer kernel")));
    }

    #[test]
    fn a_kernel_has_sctp_or_not() {
        let files =
            Files::with("absent", &[RELEASE, ("lib/modules/6.1.0/modules.dep", "kernel/sctp_diag.ko:\n")]);
        assert!(sctp(&files).found.starts_with("none in this kernel (6.1.0)"), "{:?}", sctp(&files));
        let files = Files::with("module", &[RELEASE, MODULES]);
        assert!(sctp(&files).found.contains("not loaded"), "{:?}", sctp(&files));
    }

    #[test]
    fn a_module_may_be_forbidden() {
        for line in ["blacklist sctp", "install sctp /bin/true", " install  sctp /usr/bin/false # rare"] {
            let files = Files::with("forbidden", &[RELEASE, MODULES, ("etc/modprobe.d/rare.conf", line)]);
            assert!(sctp(&files).found.contains("/etc/modprobe.d/rare.conf forbids"), "{:?}", sctp(&files));
        }
        for line in
            ["# blacklist sctp", "blacklist sctp_diag", "install sctp /sbin/modprobe --ignore-install sctp"]
        {
            let files = Files::with("allowed", &[RELEASE, MODULES, ("etc/modprobe.d/rare.conf", line)]);
            assert!(sctp(&files).found.contains("not loaded"), "{line}: {:?}", sctp(&files));
        }
    }

    #[test]
    fn a_loaded_module_may_hold_the_udp_port() {
        let files =
            Files::with("loaded", &[("proc/net/sctp/snmp", ""), ("proc/sys/net/sctp/udp_port", "0\n")]);
        let finding = sctp(&files);
        assert!(finding.state == State::Note && finding.found.starts_with("loaded; "), "{finding:?}");
        let files =
            Files::with("holds", &[("proc/net/sctp/snmp", ""), ("proc/sys/net/sctp/udp_port", "9899\n")]);
        assert!(sctp(&files).found.contains("holds UDP port 9899"), "{:?}", sctp(&files));
    }

    #[test]
    fn settings_that_forbid_namespaces_are_named() {
        assert_eq!(user_namespaces(&Files::with("free", &[]), Ok(())).state, State::Ok);
        for name in [
            "kernel/unprivileged_userns_clone 0",
            "kernel/apparmor_restrict_unprivileged_userns 1",
            "user/max_user_namespaces 0",
        ] {
            let (name, value) = name.split_once(' ').expect("two words");
            let files = Files::with("namespaces", &[(&format!("proc/sys/{name}"), value)]);
            let finding = user_namespaces(&files, Err("not permitted".into()));
            let expected = format!("sysctl -w {}=", name.replace('/', "."));
            assert!(finding.advice.as_ref().is_some_and(|a| a.contains(&expected)), "{finding:?}");
        }
    }
}
