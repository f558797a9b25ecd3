//! Limits how much work one task does before the tasks of other sockets run.
//!
//! All tasks share one thread. A program or a peer that sends without pause keeps its task ready without end. So each
//! loop that handles their input spends a [`Quantum`], and yields when it is used up.

use tokio::task;

/// Maximum number of records of a channel, or messages of an association, that a task handles in one turn.
pub(crate) const RECORDS_PER_TURN: usize = 64;

/// Maximum number of content bytes that a task copies in one turn: a long record counts as several.
pub(crate) const BYTES_PER_TURN: usize = 1 << 17;

/// Returns the number of records that a record with this much content counts as.
pub(crate) fn weight(content_bytes: usize) -> usize {
    1 + content_bytes / (BYTES_PER_TURN / RECORDS_PER_TURN)
}

/// The state of a task's turn after work was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TurnState {
    /// The task may go on.
    Lasts,
    /// The task must let others run before it goes on.
    Over,
}

/// The rest of a task's turn.
pub(crate) struct Quantum {
    records: usize,
}

impl Quantum {
    pub(crate) fn new() -> Quantum {
        Quantum { records: RECORDS_PER_TURN }
    }

    /// Returns how many more records the turn may handle.
    pub(crate) fn left(&self) -> usize {
        self.records
    }

    /// Counts handled records. After [`TurnState::Over`] the next turn has begun.
    pub(crate) fn spend(&mut self, records: usize) -> TurnState {
        if records >= self.records {
            self.records = RECORDS_PER_TURN;
            return TurnState::Over;
        }
        self.records -= records;
        TurnState::Lasts
    }

    /// Counts handled records, and lets other tasks run when the turn is over.
    pub(crate) async fn spend_or_yield(&mut self, records: usize) {
        if self.spend(records) == TurnState::Over {
            task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_records_end_a_turn_sooner() {
        assert_eq!([weight(0), weight(1024), weight(BYTES_PER_TURN)], [1, 1, 1 + RECORDS_PER_TURN]);
    }

    #[test]
    fn a_turn_ends_after_so_many_records() {
        let mut quantum = Quantum::new();
        let turns = (0..3 * RECORDS_PER_TURN).filter(|_| quantum.spend(1) == TurnState::Over).count();
        assert_eq!(turns, 3);
        assert_eq!(quantum.spend(RECORDS_PER_TURN - 1), TurnState::Lasts);
        assert_eq!(quantum.spend(RECORDS_PER_TURN), TurnState::Over, "exceeding the rest ends the turn, too");
    }
}
