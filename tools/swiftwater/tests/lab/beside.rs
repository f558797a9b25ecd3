//! Hosts that cannot be joined beside their lines.

use std::fs;
use std::process::Command;

use serde_json::Value;
use swiftwater_tests::tools;

use super::support::{Folder, lab, output, possible, users};
use super::troubles::write_program;

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn reports_over_a_line_are_told_and_lines_that_go_down_are_left_out() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("beside");
    let ip = tools::program("ip").expect("it is installed");
    let without_veth = "case \"$*\" in *veth*) echo 'Unknown device type' >&2; exit 2;; esac\nexec";
    write_program(&folder, "ip", &format!("{without_veth} {} \"$@\"\n", ip.display()));
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").expect("a path"));
    let out = folder.file("out");
    let live = |words: &[&str]| -> Command {
        let words = [&["--live"], words, &["--quick", "--out", out.to_str().expect("ours")]].concat();
        let mut command = lab(users()[0], &words);
        command.env("PATH", &path);
        command
    };
    let case = "64 bytes, sctp-message, paths: 1";
    let (output, said) = output(&mut live(&["asymmetric-rate", "--seconds", "0.5", "--case", case]));
    assert!(output.status.success() && said.contains("there are no veth pairs"), "{said}");
    let manifest = fs::read(out.join("manifest.json")).expect("written");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let limits = manifest["limits"].as_array().expect("sentences");
    assert!(limits.iter().any(|limit| limit.to_string().contains("Unknown device type")), "{manifest}");
    let (output, said) = self::output(&mut live(&["failover", "--case", "sctp-stream"]));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("without lines that go down") && said.contains("nothing was measured"), "{said}");
}
