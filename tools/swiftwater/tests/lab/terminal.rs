//! `lab shell` in a terminal.

use std::io::Write;
use std::process::{Command, Stdio};

use swiftwater_tests::tools;

use super::support::{SWIFTWATER, possible};

/// Types lines into a terminal in which a shell runs `lab shell` with this shell, and then reads a line itself. Returns what the
/// terminal shows.
fn terminal(shell: &str, lines: &str) -> String {
    let inner = format!("SHELL={shell} {SWIFTWATER} lab shell; read line; echo \"read $line\"");
    let mut command = Command::new("script");
    command.args(["--quiet", "--echo", "never", "--command", &inner, "/dev/null"]).env("SHELL", "/bin/sh");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = command.spawn().expect("it starts");
    script.stdin.take().expect("it is piped").write_all(lines.as_bytes()).expect("it reads");
    let output = script.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs namespaces, ip and script: ./test --all"]
fn a_shell_gives_the_terminal_back() {
    if !possible(&["script"]) {
        return;
    }
    for shell in ["/bin/sh", "bash", "dash"] {
        let Some(shell) = tools::program(shell) else { continue };
        let lines = format!("{SWIFTWATER} lab shell --server\nexit\nexit\nback\n");
        let shown = terminal(&shell.display().to_string(), &lines);
        assert!(
            shown.contains("the client, 198.18.0.1") && shown.contains("the server, 198.18.0.2"),
            "{shown}"
        );
        assert!(!shown.contains("Cannot set tty") && shown.contains("read back"), "{shown}");
    }
}
