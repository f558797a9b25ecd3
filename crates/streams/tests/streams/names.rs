//! Names: devices, minors, clone opens, modules and autopush (SVR4.2 DDI/DKI `open(D2DK)`; `clone(7)`, `autopush(1M)`,
//! `sad(7)`).

use streams::modules::Counter;
use streams::{Autopush, Credentials, OpenError, PopError, PushError};

use crate::support::{Rig, epoch};

const USER: Credentials = Credentials { uid: 1000, gid: 1000 };
const OTHER: Credentials = Credentials { uid: 1001, gid: 1001 };

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.executive.add_module(
        "counter",
        Box::new(|arguments| match arguments {
            [] => Ok(Box::new(Counter::new())),
            [first, ..] => Err(format!("{first} is too much")),
        }),
    );
    rig
}

#[test]
fn a_clone_open_gets_a_minor_of_its_own() {
    let mut rig = rig();
    let a = rig.executive.open_named("device", None, USER).unwrap();
    let b = rig.executive.open_named("device", None, USER).unwrap();
    assert_ne!(rig.executive.minor_of(a), rig.executive.minor_of(b));
    let open = *rig.state().opened.last().unwrap();
    assert!(open.is_clone && open.is_first);
    assert_eq!((open.credentials, Some(open.minor)), (USER, rig.executive.minor_of(b)));
    assert_eq!(rig.executive.open_named("nothing", None, USER), Err(OpenError::NoDriver));
}

#[test]
fn a_minor_opened_again_shares_its_stream_until_the_last_close() {
    let mut rig = rig();
    let first = rig.executive.open_named("device", Some(7), USER).unwrap();
    let again = rig.executive.open_named("device", Some(7), Credentials::ROOT).unwrap();
    assert_eq!(first, again);
    assert!(!rig.state().opened.last().unwrap().is_first);
    assert_eq!(rig.executive.open_named("device", Some(7), OTHER), Err(OpenError::NotOwner));
    rig.executive.at(epoch()).close(first);
    assert!(rig.executive.is_open(first));
    rig.executive.at(epoch()).close(first);
    assert!(!rig.executive.is_open(first));
    assert_eq!(rig.take_diary(), ["close"], "the driver closes once");
    let anew = rig.executive.open_named("device", Some(7), OTHER).unwrap();
    assert_ne!(anew, first);
}

#[test]
fn a_clone_open_never_takes_a_minor_that_is_open() {
    let mut rig = rig();
    for minor in 0..5 {
        // The rig's own stream has one of them.
        let _ = rig.executive.open_named("device", Some(minor), Credentials::ROOT).unwrap();
    }
    let s = rig.executive.open_named("device", None, USER).unwrap();
    assert_eq!(rig.executive.minor_of(s), Some(5));
}

#[test]
fn only_its_owner_and_the_superuser_may_control_a_stream() {
    let mut rig = rig();
    let s = rig.executive.open_named("device", None, USER).unwrap();
    assert!(rig.executive.may_control(s, &USER));
    assert!(rig.executive.may_control(s, &Credentials::ROOT));
    assert!(!rig.executive.may_control(s, &OTHER));
}

#[test]
fn a_module_is_pushed_by_its_name_and_arguments() {
    let mut rig = rig();
    assert_eq!(rig.executive.push_named(rig.s, "counter", &[]), Ok(()));
    assert_eq!(rig.executive.modules(rig.s), ["counter"]);
    let refused = rig.executive.push_named(rig.s, "counter", &["5".into()]);
    assert_eq!(refused, Err(PushError::Argument("5 is too much".into())));
    assert_eq!(rig.executive.push_named(rig.s, "none", &[]), Err(PushError::NoModule));
    assert_eq!(rig.executive.module_names(), ["counter"]);
}

#[test]
fn an_anchor_holds_what_stands_below_it() {
    let mut rig = rig();
    assert_eq!(rig.executive.anchor(rig.s), Err(PopError::NoModule));
    rig.executive.push_named(rig.s, "counter", &[]).unwrap();
    rig.executive.anchor(rig.s).unwrap();
    rig.executive.push_named(rig.s, "counter", &[]).unwrap();
    assert!(rig.executive.pop(rig.s).is_ok(), "what stands above the anchor can be popped");
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Anchored));
    assert!(rig.executive.pop_any(rig.s).is_ok());
}

#[test]
fn autopush_pushes_by_device_and_minor() {
    let mut rig = rig();
    let rules = Autopush::parse(
        "# device first last modules\n\
         device 10 12 counter counter # a comment\n\
         device 20 0  counter\n\
         other  -1 0  counter(5)\n",
    );
    rig.executive.set_autopush(rules.unwrap());
    let mut modules = |minor| {
        let s = rig.executive.open_named("device", Some(minor), USER).unwrap();
        rig.executive.modules(s).len()
    };
    assert_eq!([9, 10, 12, 13, 20, 21].map(&mut modules), [0, 2, 2, 0, 1, 0]);
}

#[test]
fn a_rule_that_cannot_be_followed_refuses_the_open() {
    let mut rig = rig();
    rig.executive.set_autopush(Autopush::parse("device 30 0 counter nothing").unwrap());
    let refused = rig.executive.open_named("device", Some(30), USER);
    assert_eq!(refused, Err(OpenError::Autopush(PushError::NoModule)));
    assert_eq!(rig.take_diary(), ["close"]);
}

#[test]
fn a_wrong_rule_names_its_line() {
    let wrong = [
        ("device 1", "a rule is"),
        ("\ndevice x 0 m", "x is not the number"),
        ("device 5 3 m", "minor devices 5 to 3"),
        ("device 1 2", "a rule names 1 to 8"),
        ("device 1 2 m(3", "lacks its closing parenthesis"),
    ];
    for (text, why) in wrong {
        let error = Autopush::parse(text).unwrap_err();
        assert_eq!(error.line, text.lines().count());
        assert!(error.what.contains(why), "{error}");
    }
}
