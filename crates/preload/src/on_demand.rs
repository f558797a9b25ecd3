//! A way to start a daemon, for programs that nobody has started with one.

use std::sync::OnceLock;

/// Starts a daemon and waits until what it is handed says that one answers; false: there will be none.
pub type Starter = fn(&dyn Fn() -> bool) -> bool;

static STARTER: OnceLock<Starter> = OnceLock::new();

/// The first socket of a program starts a daemon in this way where none answers. The first who says it is heard.
pub fn start_with(starter: Starter) {
    // A second one would start the same.
    let _ = STARTER.set(starter);
}

/// Starts a daemon if there is a way; says whether one answers.
pub(crate) fn start(answers: &dyn Fn() -> bool) -> bool {
    STARTER.get().is_some_and(|starter| starter(answers))
}
