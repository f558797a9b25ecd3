//! The bar that shows the progress of an experiment on the terminal.

use std::fmt;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Returns a bar of so many steps for the terminal.
pub(super) fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %{rest}  {msg}") {
        bar.set_style(style.with_key("rest", write_rest));
    }
    bar
}

/// Writes how long the remaining steps take. Before the first step nothing is known.
fn write_rest(state: &ProgressState, out: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        // The bar keeps what it is given.
        let _ = write!(out, "  {:#} left", HumanDuration(state.eta()));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal that keeps what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        /// Returns what was written since the last call.
        fn take(&self) -> String {
            std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_rest_of_the_time_is_told_once_a_step_has_shown_it() {
        let (terminal, bar) = (Terminal::default(), progress_bar(100));
        bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        bar.set_message("tcp-cubic");
        bar.tick();
        let drawn = terminal.take();
        assert!(drawn.contains("0 %  tcp-cubic") && !drawn.contains("left"), "{drawn}");
        bar.set_position(1);
        bar.tick();
        let drawn = terminal.take();
        assert!(drawn.contains("1 %  ") && drawn.contains("s left  tcp-cubic"), "{drawn}");
    }
}
