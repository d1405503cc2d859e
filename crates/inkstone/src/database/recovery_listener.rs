//! Tells the program when work is done that the opening has left to background threads.
//!
//! # Promises
//!
//! 1. A listener hears each text once, whenever it began to listen. Tested by
//!    `what_is_done_behind_the_opening_is_told_once`.

use super::opening::Recovered;
use crate::paranoid::paranoid;
use crate::sync::{Instant, Mutex};
use std::sync::Arc;

/// What is called with a text for people.
pub type Listener = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
struct State {
    listener: Option<Listener>,
    /// What was told before anything listened.
    kept: Vec<String>,
    undo_awaited: bool,
}

/// See the module.
pub(crate) struct RecoveryListener {
    opened: Instant,
    /// Pages that were left to be redone, bytes of their changes, row changes left to be undone.
    left: (u64, u64, u64),
    state: Mutex<State>,
}

impl RecoveryListener {
    pub fn new(recovered: Option<&Recovered>) -> Self {
        let left = recovered.map_or((0, 0, 0), |found| {
            paranoid!(
                found.rows_without_space <= found.rows_to_undo,
                "{} changes to undo, {} of them without space",
                found.rows_to_undo,
                found.rows_without_space
            );
            let rows = found.rows_to_undo - found.rows_without_space;
            (found.redo.pages_left, found.redo.bytes_left, rows)
        });
        let state = State {
            undo_awaited: left.2 > 0,
            ..State::default()
        };
        Self {
            opened: Instant::now(),
            left,
            state: Mutex::new(state),
        }
    }

    /// Has a listener told of what is done, and of what was.
    pub fn listen(&self, listener: Listener) {
        let mut state = self.state.lock();
        state.listener = Some(listener.clone());
        let kept = std::mem::take(&mut state.kept);
        drop(state);
        kept.iter().for_each(|text| listener(text));
    }

    fn tell(&self, text: String) {
        let mut state = self.state.lock();
        let Some(listener) = state.listener.clone() else {
            return state.kept.push(text);
        };
        paranoid!(
            state.kept.is_empty(),
            "{} earlier messages were not told",
            state.kept.len()
        );
        drop(state);
        listener(&text);
    }

    /// Nothing is left of redo.
    pub fn redone(&self) {
        let (pages, bytes, _) = self.left;
        let seconds = self.opened.elapsed().as_secs_f64();
        if pages > 0 {
            self.tell(format!(
                "redo behind the opening is complete: {pages} pages, {bytes} bytes of changes, \
                 {seconds:.1} s"
            ));
        }
    }

    /// Nothing is left to be undone.
    pub fn undone(&self) {
        if !std::mem::take(&mut self.state.lock().undo_awaited) {
            return;
        }
        let (rows, seconds) = (self.left.2, self.opened.elapsed().as_secs_f64());
        paranoid!(rows > 0, "the rollback of nothing was awaited");
        self.tell(format!(
            "rollback behind the opening is complete: {rows} row changes undone, {seconds:.1} s"
        ));
    }
}
