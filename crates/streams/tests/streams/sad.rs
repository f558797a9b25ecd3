//! The administrative driver: `sad(7)` of SVR4.2, `sad(4)` of Fast-STREAMS.

use streams::drivers::Sad;
use streams::modules;
use streams::{Autopush, Chain, Credentials, Errno, IoctlError, IoctlRequest, IoctlStep, StreamId};

use crate::support::Rig;

const USER: Credentials = Credentials { uid: 1000, gid: 1000 };
const ADDRESS: u64 = 0x7000;

const CLEAR: i32 = 0;
const ONE: i32 = 1;
const RANGE: i32 = 2;
const ALL: i32 = 3;

fn rig() -> (Rig, StreamId) {
    let mut rig = Rig::new();
    modules::add_all(&mut rig.executive);
    let sad = rig.executive.add_driver("sad", Box::new(Sad));
    let s = rig.executive.open(sad).unwrap();
    (rig, s)
}

/// Returns a `strapush` for the rig's driver, which is number 0.
fn rule(command: i32, first: i64, last: i64, names: &[&str]) -> Vec<u8> {
    let mut bytes = [&command.to_ne_bytes()[..], &[0; 4], &0i64.to_ne_bytes()].concat();
    bytes.extend([first, last].map(i64::to_ne_bytes).concat());
    bytes.extend((names.len() as u32).to_ne_bytes());
    for name in names {
        bytes.extend(name.bytes().chain(std::iter::repeat(0)).take(9));
    }
    bytes.resize(112, 0);
    bytes
}

/// Goes through a transparent ioctl whose argument is `data`, and returns its value and what it has copied out.
fn ioctl(
    rig: &mut Rig,
    s: StreamId,
    request: IoctlRequest,
    data: &[u8],
) -> Result<(i32, Vec<u8>), IoctlError> {
    let step = rig.executive.ioctl_begin(s, request)?;
    assert_eq!(step, IoctlStep::CopyIn { address: ADDRESS, bytes: data.len() });
    let mut step = rig.executive.ioctl_copied(s, Ok(Chain::from(data.to_vec())))?;
    let mut written = Vec::new();
    if let IoctlStep::CopyOut { address, data } = step {
        assert_eq!(address, ADDRESS);
        written = data.to_vec();
        step = rig.executive.ioctl_copied(s, Ok(Chain::new()))?;
    }
    match step {
        IoctlStep::Done(reply) => Ok((reply.value, written)),
        other => panic!("{other:?}"),
    }
}

fn set(rig: &mut Rig, s: StreamId, rule: &[u8]) -> Result<i32, IoctlError> {
    ioctl(rig, s, IoctlRequest::transparent(Sad::SAP, ADDRESS), rule).map(|(value, _)| value)
}

fn get(rig: &mut Rig, s: StreamId, minor: i64) -> Result<Vec<u8>, IoctlError> {
    let request = IoctlRequest::transparent(Sad::GAP, ADDRESS).by(USER);
    ioctl(rig, s, request, &rule(ONE, minor, 0, &[])).map(|(_, written)| written)
}

fn modules_of(rig: &mut Rig, minor: u32) -> Vec<String> {
    let s = rig.executive.open_named("device", Some(minor), Credentials::ROOT).unwrap();
    rig.executive.modules(s)
}

fn refused<T>(errno: Errno) -> Result<T, IoctlError> {
    Err(IoctlError::Refused(errno))
}

/// SAD_SAP with SAP_ONE, SAP_RANGE, SAP_ALL and SAP_CLEAR.
#[test]
fn a_rule_holds_for_one_for_some_or_for_all_minor_devices_until_it_is_cleared() {
    let (mut rig, s) = rig();
    assert_eq!(set(&mut rig, s, &rule(ONE, 10, 0, &["nullmod", "counter"])), Ok(0));
    assert_eq!(set(&mut rig, s, &rule(RANGE, 20, 22, &["bufmod"])), Ok(0));
    assert_eq!(modules_of(&mut rig, 10), ["counter", "nullmod"], "the first stands next above the driver");
    assert_eq!([19, 20, 22, 23].map(|minor| modules_of(&mut rig, minor).len()), [0, 1, 1, 0]);
    assert_eq!(set(&mut rig, s, &rule(CLEAR, 20, 0, &[])), Ok(0));
    assert_eq!(set(&mut rig, s, &rule(CLEAR, 10, 0, &[])), Ok(0));
    assert_eq!(modules_of(&mut rig, 21), [""; 0]);
    assert_eq!(set(&mut rig, s, &rule(ALL, 99, 0, &["nullmod"])), Ok(0));
    assert_eq!(modules_of(&mut rig, 5), ["nullmod"]);
    assert_eq!(set(&mut rig, s, &rule(CLEAR, 0, 0, &[])), Ok(0));
    assert_eq!(modules_of(&mut rig, 6), [""; 0]);
}

/// SAD_GAP: the rule as it was set; any user may ask.
#[test]
fn a_rule_can_be_told() {
    let (mut rig, s) = rig();
    for (set_to, asked) in
        [(rule(ONE, 10, 0, &["nullmod", "compress"]), 10), (rule(RANGE, 20, 22, &["bufmod"]), 21)]
    {
        set(&mut rig, s, &set_to).unwrap();
        assert_eq!(get(&mut rig, s, asked), Ok(set_to));
    }
    assert_eq!(get(&mut rig, s, 11), refused(Errno::ENODEV));
    rig.executive.set_autopush(Autopush::parse("device -1 0 counter(x)").unwrap());
    assert_eq!(
        get(&mut rig, s, 11),
        Ok(rule(ALL, 0, 0, &["counter"])),
        "the structure has no place for arguments"
    );
    rig.executive.set_autopush(Autopush::parse("device -1 0 nullmodule").unwrap());
    assert_eq!(get(&mut rig, s, 11), refused(Errno::ERANGE), "nor for a name of more than 8 bytes");
}

/// The errors of SAD_SAP.
#[test]
fn a_wrong_rule_is_refused() {
    let (mut rig, s) = rig();
    set(&mut rig, s, &rule(RANGE, 20, 22, &["bufmod"])).unwrap();
    let cases = [
        (rule(ONE, 22, 0, &["bufmod"]), Errno::EEXIST, "a part of a range has a rule"),
        (rule(ALL, 0, 0, &["bufmod"]), Errno::EEXIST, "so has one of all"),
        (rule(RANGE, 5, 5, &["bufmod"]), Errno::ERANGE, "the last is not above the first"),
        (rule(CLEAR, 21, 0, &[]), Errno::ERANGE, "it is not the first of its range"),
        (rule(CLEAR, 7, 0, &[]), Errno::ENODEV, "it has no rule"),
        (rule(ONE, 7, 0, &[]), Errno::EINVAL, "no module"),
        (rule(ONE, 7, 0, &["nothing"]), Errno::EINVAL, "no such module"),
        (rule(ONE, -7, 0, &["bufmod"]), Errno::EINVAL, "no such minor device"),
        (rule(4, 7, 0, &["bufmod"]), Errno::EINVAL, "no such command"),
    ];
    for (rule, errno, why) in cases {
        assert_eq!(set(&mut rig, s, &rule), refused(errno), "{why}");
    }
    let mut nine = rule(ONE, 7, 0, &["bufmod"; 8]);
    nine[32..36].copy_from_slice(&9u32.to_ne_bytes());
    assert_eq!(set(&mut rig, s, &nine), refused(Errno::EINVAL), "more than MAXAPUSH modules");
    let mut driver = rule(ONE, 7, 0, &["bufmod"]);
    driver[8..16].copy_from_slice(&77i64.to_ne_bytes());
    assert_eq!(set(&mut rig, s, &driver), refused(Errno::EINVAL), "no such driver");
    let mut endless = rule(ONE, 7, 0, &["bufmod"]);
    endless[36..45].copy_from_slice(b"bufmodule");
    assert_eq!(set(&mut rig, s, &endless), refused(Errno::EINVAL), "a name without its zero");
    set(&mut rig, s, &rule(CLEAR, 20, 0, &[])).unwrap();
    set(&mut rig, s, &rule(ALL, 0, 0, &["bufmod"])).unwrap();
    assert_eq!(set(&mut rig, s, &rule(CLEAR, 3, 0, &[])), refused(Errno::EINVAL), "the rule is of all");
}

/// EPERM: only the superuser sets rules. EFAULT: the address is not the caller's.
#[test]
fn rules_are_the_superusers() {
    let (mut rig, s) = rig();
    let request = IoctlRequest::transparent(Sad::SAP, ADDRESS);
    let by_user = ioctl(&mut rig, s, request.clone().by(USER), &rule(ALL, 0, 0, &["nullmod"]));
    assert_eq!(by_user, refused(Errno::EPERM));
    rig.executive.ioctl_begin(s, request).unwrap();
    assert_eq!(rig.executive.ioctl_copied(s, Err(Errno::EFAULT)), refused(Errno::EFAULT));
    let string = rig.executive.ioctl(s, Sad::SAP, rule(ALL, 0, 0, &["nullmod"]));
    assert_eq!(string, refused(Errno::EINVAL), "it is transparent");
    assert_eq!(modules_of(&mut rig, 5), [""; 0]);
}

/// SAD_VML: 0 where all modules exist, otherwise 1.
#[test]
fn a_list_of_modules_is_validated() {
    let (mut rig, s) = rig();
    let mut validate = |names: &[&str], count: i32| {
        let list = [&count.to_ne_bytes()[..], &[0; 4], &0x9000u64.to_ne_bytes()].concat();
        rig.executive.ioctl_begin(s, IoctlRequest::transparent(Sad::VML, ADDRESS).by(USER))?;
        let step = rig.executive.ioctl_copied(s, Ok(list.into()))?;
        assert_eq!(step, IoctlStep::CopyIn { address: 0x9000, bytes: names.len() * 9 });
        let entries = rule(0, 0, 0, names)[36..36 + names.len() * 9].to_vec();
        match rig.executive.ioctl_copied(s, Ok(entries.into()))? {
            IoctlStep::Done(reply) => Ok(reply.value),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(validate(&["nullmod", "timod"], 2), Ok(0));
    assert_eq!(validate(&["nullmod", "nothing"], 2), Ok(1));
    for count in [0, -1, 65] {
        assert_eq!(validate(&[], count), refused(Errno::EINVAL), "{count}");
    }
}
