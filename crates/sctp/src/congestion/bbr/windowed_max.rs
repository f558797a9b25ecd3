//! The maximum of the values of the last rounds.

/// A value and the round in which it was measured.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    value: u64,
    round: u64,
}

/// A running maximum over a window of rounds in constant space (Kathleen Nichols): the best value of the window, the
/// best after that one, and the best after the second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowedMax {
    best: [Seen; 3],
}

impl WindowedMax {
    pub(super) fn get(&self) -> u64 {
        self.best[0].value
    }

    /// Adds a value of round `round`, and drops values older than `window` rounds.
    pub(super) fn update(&mut self, window: u64, round: u64, value: u64) {
        let seen = Seen { value, round };
        if value >= self.best[0].value || round - self.best[2].round > window {
            self.best = [seen; 3];
            return;
        }
        if value >= self.best[1].value {
            self.best[1] = seen;
            self.best[2] = seen;
        } else if value >= self.best[2].value {
            self.best[2] = seen;
        }
        self.age(window, seen);
    }

    fn age(&mut self, window: u64, seen: Seen) {
        let [first, second, _] = self.best;
        let age = seen.round - first.round;
        if age > window {
            // The best value is too old: the next two move up.
            self.best = [second, self.best[2], seen];
            if seen.round - self.best[0].round > window {
                self.best = [self.best[1], self.best[2], seen];
            }
        } else if second.round == first.round && age > window / 4 {
            // A quarter of the window has passed without a better second value: the newest value becomes the second.
            self.best[1] = seen;
            self.best[2] = seen;
        } else if self.best[2].round == second.round && age > window / 2 {
            self.best[2] = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_lasts_for_its_window() {
        let mut max = WindowedMax::default();
        for (round, value) in [(1, 5), (2, 9), (3, 4), (6, 6), (9, 3), (12, 2)] {
            max.update(10, round, value);
            assert_eq!(max.get(), if round < 2 { 5 } else { 9 });
        }
        max.update(10, 13, 1);
        assert_eq!(max.get(), 6);
        max.update(10, 40, 1);
        assert_eq!(max.get(), 1);
        max.update(10, 41, 7);
        assert_eq!(max.get(), 7);
    }

    #[test]
    fn it_is_never_under_the_newest_nor_over_the_true_maximum() {
        let mut max = WindowedMax::default();
        let values: Vec<u64> = (0..2000_u64).map(|i| i.wrapping_mul(2_654_435_761) % 1000).collect();
        for (round, &value) in values.iter().enumerate() {
            max.update(10, round as u64, value);
            let window = &values[round.saturating_sub(10)..=round];
            assert!(max.get() >= value);
            assert!(max.get() <= *window.iter().max().unwrap_or(&0));
        }
    }
}
