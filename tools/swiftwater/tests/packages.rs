//! Tests of the contents of the Debian package. `packaging/check` installs and uses it.
#![allow(missing_docs)]

#[allow(dead_code, reason = "nothing runs here")]
mod daemon;

use std::path::Path;
use std::process::Command;

use daemon::{SWIFTWATER, preload};
use swiftwater_tests::tools;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

/// Returns the output of a command that succeeds.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Builds the contents of the package, and returns their folder.
fn built() -> &'static Path {
    preload();
    let built = Path::new(SWIFTWATER).parent().expect("a folder");
    let library = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "swiftwater-capi", "--target-dir"])
        .arg(built.parent().expect("a target folder"))
        .status();
    assert!(library.expect("cargo is there").success());
    built
}

#[test]
fn a_package_of_nothing_is_refused_with_advice() {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing-built");
    std::fs::create_dir_all(&empty).expect("a folder");
    let output = Command::new(Path::new(PACKAGING).join("deb")).arg("--from").arg(&empty).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("run cargo build --release first"), "{said}");
}

/// `sudo` replaces PATH, and rustup puts cargo below the home of its user.
#[test]
fn an_installation_without_cargo_is_answered_with_advice() {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-cargo");
    std::fs::create_dir_all(&tools).expect("a folder");
    let dirname = tools.join("dirname");
    if !dirname.exists() {
        std::os::unix::fs::symlink("/usr/bin/dirname", &dirname).expect("a link");
    }
    for (words, advice, code) in [
        (&[][..], "--from target/release", 1),
        (&["--prefix"], "packaging/install: --prefix wants a folder", 2),
        (&["--prefix", "/home/me/my programs"], "a space or a colon", 2),
        (&["--libdir", "/co:lon"], "a space or a colon", 2),
    ] {
        let mut install = Command::new("/bin/bash");
        install.arg(Path::new(PACKAGING).join("install")).args(words).env("PATH", &tools);
        let output = install.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(advice), "{words:?}: {said}");
    }
}

#[test]
fn a_package_has_all_that_users_need() {
    if tools::program("dpkg-deb").is_none() {
        return;
    }
    let built = built();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let deb = Path::new(PACKAGING).join("deb");
    let mut make = Command::new(deb);
    // Compresses quickly rather than well.
    make.arg("--from").arg(built).arg("--out").arg(&out).env("DEB_COMPRESSION", "none");
    // The source may come without its history.
    make.env("GIT_DIR", "/nowhere").env_remove("SOURCE_DATE_EPOCH");
    let packages = said(&mut make);
    let multiarch = said(Command::new("cc").arg("-print-multiarch"));
    let lib = format!("usr/lib/{}", multiarch.trim());
    let expected: [&[String]; 3] = [
        &[
            "usr/bin/swiftwater",
            "usr/lib/swiftwater/libswiftwater_preload.so",
            "usr/lib/systemd/system/swiftwater.socket",
            "usr/lib/systemd/system/swiftwater.service",
            "usr/share/man/man1/swiftwater-run.1.gz",
            "usr/share/bash-completion/completions/swiftwater",
            "usr/share/zsh/vendor-completions/_swiftwater",
            "usr/share/fish/vendor_completions.d/swiftwater.fish",
            "usr/share/doc/swiftwater/copyright",
            "usr/share/doc/swiftwater/changelog.gz",
            "usr/share/doc/swiftwater/SECURITY.md",
            "usr/share/doc/swiftwater/INDEX.md",
        ]
        .map(String::from),
        &[format!("{lib}/libswiftwater.so.0")],
        &[
            format!("{lib}/libswiftwater.so -> libswiftwater.so.0"),
            format!("{lib}/libswiftwater.a"),
            format!("{lib}/pkgconfig/swiftwater.pc"),
            "usr/include/swiftwater/netinet/sctp.h".into(),
            "usr/share/doc/libswiftwater-dev/examples/echo-client.c".into(),
        ],
    ];
    assert_eq!(packages.lines().count(), expected.len());
    for (package, files) in packages.lines().zip(expected) {
        let version = said(Command::new("dpkg-deb").args(["--field", package, "Version"]));
        assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
        let contents = said(Command::new("dpkg-deb").args(["--contents", package]));
        for file in files {
            let is_there = contents.lines().any(|line| line.ends_with(&format!(" ./{file}")));
            assert!(is_there, "{file} is missing in {package}:\n{contents}");
        }
        assert!(contents.lines().all(|line| line.contains(" root/root ")), "{contents}");
    }
    let command = packages.lines().next().expect("the command's");
    for script in ["postinst", "prerm", "postrm"] {
        let text = said(Command::new("dpkg-deb").args(["--info", command, script]));
        assert_eq!(
            text,
            std::fs::read_to_string(Path::new(PACKAGING).join("maintainer").join(script)).expect("it")
        );
        said(Command::new("sh").args(["-n"]).arg(Path::new(PACKAGING).join("maintainer").join(script)));
    }
    links_lead_somewhere(command, &out.join("unpacked"));
}

/// Checks that each link between the pages of a package leads to a page that is in it.
fn links_lead_somewhere(package: &str, folder: &Path) {
    said(Command::new("dpkg-deb").args(["--extract", package]).arg(folder));
    let pages = folder.join("usr/share/doc/swiftwater");
    let mut links = 0;
    for page in std::fs::read_dir(&pages).expect("it has pages").flatten() {
        let Ok(text) = std::fs::read_to_string(page.path()) else { continue };
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_outside = target.starts_with("http") || target.is_empty();
            assert!(is_outside || pages.join(target).is_file(), "{}: {target}", page.path().display());
            links += 1;
        }
    }
    assert!(links > 10, "the pages link to each other");
}

#[test]
fn an_installation_below_a_prefix_finds_its_shim() {
    let built = built();
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
    let mut install = Command::new(Path::new(PACKAGING).join("install"));
    let files = said(install.arg("--from").arg(built).arg("--prefix").arg(&prefix));
    for file in files.lines() {
        assert!(Path::new(file).is_file() && file.starts_with(prefix.to_str().expect("text")), "{file}");
    }
    let library = std::fs::canonicalize(prefix.join("lib/libswiftwater.so")).expect("the links lead to it");
    assert!(
        library.ends_with(concat!("libswiftwater.so.", env!("CARGO_PKG_VERSION"))),
        "{}",
        library.display()
    );
    let shim_of = |command: &Path| {
        let output = Command::new(command).args(["doctor", "--json"]).output().expect("it starts");
        let checks: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        checks.into_iter().find(|check| check["check"] == "shim").expect("it looks for the shim")
    };
    let command = prefix.join("bin/swiftwater");
    assert_eq!(shim_of(&command)["state"], "ok");
    // The layout that `cargo install` leaves.
    let alone = prefix.join("cargo/bin");
    std::fs::create_dir_all(&alone).expect("a folder");
    std::fs::copy(&command, alone.join("swiftwater")).expect("a copy");
    let found = shim_of(&alone.join("swiftwater"));
    assert_eq!(found["state"], "fails");
    let run = Command::new(alone.join("swiftwater")).args(["run", "--", "true"]).output().expect("it starts");
    assert!(String::from_utf8_lossy(&run.stderr).contains("packaging/install"), "{run:?}");
}

#[test]
fn the_container_runs_what_is_installed() {
    let recipe =
        std::fs::read_to_string(Path::new(PACKAGING).join("container/Containerfile")).expect("a recipe");
    for line in ["USER nobody", "EXPOSE 9899/udp", "ENTRYPOINT [\"swiftwater\", \"run\", \"--\"]"] {
        assert!(recipe.lines().any(|text| text == line), "{line}");
    }
    let socket =
        std::fs::read_to_string(Path::new(PACKAGING).join("systemd/swiftwater.socket")).expect("a unit");
    let place = format!("ListenSequentialPacket={}", swiftwater_daemon::DaemonAddress::default());
    assert!(socket.lines().any(|line| line == place), "programs look for {place}");
}
