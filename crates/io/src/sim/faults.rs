//! The simulated process: whether it lives, what it has done, and which of its operations fail.

use crate::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Kinds of operations that are counted and can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Reading bytes.
    Read,
    /// Writing bytes, atomically or not.
    Write,
    /// [`File::sync`](crate::File::sync).
    Sync,
    /// Reserving space.
    Allocate,
    /// Changing the length.
    Truncate,
    /// Renaming a file.
    Rename,
    /// [`Directory::sync`](crate::Directory::sync).
    SyncDir,
    /// Opening a file, existing or new, or an existing directory.
    Open,
    /// Removing a file.
    Remove,
    /// Asking what there is: lengths, whether a file exists.
    Look,
    /// Listing the names in a directory.
    List,
    /// Creating directories.
    CreateDir,
    /// [`Directory::lock`](crate::Directory::lock).
    Lock,
}

impl OpKind {
    /// All kinds.
    pub const ALL: [OpKind; 13] = [
        OpKind::Read,
        OpKind::Write,
        OpKind::Sync,
        OpKind::Allocate,
        OpKind::Truncate,
        OpKind::Rename,
        OpKind::SyncDir,
        OpKind::Open,
        OpKind::Remove,
        OpKind::Look,
        OpKind::List,
        OpKind::CreateDir,
        OpKind::Lock,
    ];
}

/// What a failing operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails with `EIO` and does nothing. A sync that fails so loses what it should have made
    /// durable, for later syncs too, as in Linux.
    Eio,
    /// Fails with `ENOSPC` (`StorageFull`) and does nothing.
    Enospc,
    /// Fails with `EMFILE` and does nothing: the process has too many open files.
    Emfile,
    /// Fails with `EACCES` (`PermissionDenied`) and does nothing.
    Eacces,
    /// A write does a first part of its bytes (none, for an atomic write) and fails with `EIO`.
    /// As `Eio` for other kinds.
    ShortWrite,
    /// A read succeeds with one bit wrong. As `Eio` for other kinds.
    FlippedBit,
    /// A read succeeds with the bytes that stand behind those that were asked for (before them, at
    /// the end of the file). As `Eio` for other kinds.
    WrongPlace,
    /// A read succeeds with older bytes: blocks of 4 KiB as they were before they were last
    /// written. As `Eio` for other kinds.
    Stale,
    /// A write succeeds, and what was there before stays. As `Eio` for other kinds.
    Lost,
}

/// Which operations fail, and how. Given to [`SimVfs::fail`](super::SimVfs::fail).
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Only operations of this kind, or of all kinds.
    pub kind: Option<OpKind>,
    /// Only operations on paths that contain this text; empty for all.
    pub path_contains: String,
    /// The first matching operation that fails, counted from now, from 1.
    pub nth: u64,
    /// How many matching operations fail from there on.
    pub times: u64,
    /// What they do.
    pub fault: Fault,
}

/// What is inside the error of every operation of a process whose disk lost power or that was
/// killed. See [`is_dead_error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskDead;

impl fmt::Display for DiskDead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("simulated crash: this process and its disk are dead")
    }
}

impl std::error::Error for DiskDead {}

/// Whether the error says that the simulated process is dead.
pub fn is_dead_error(error: &Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<DiskDead>())
}

pub(super) fn dead() -> Error {
    Error::other(DiskDead)
}

pub(super) fn input_output_error() -> Error {
    rustix::io::Errno::IO.into()
}

impl Fault {
    fn error(self) -> Error {
        match self {
            Fault::Enospc => rustix::io::Errno::NOSPC.into(),
            Fault::Emfile => rustix::io::Errno::MFILE.into(),
            Fault::Eacces => rustix::io::Errno::ACCESS.into(),
            _ => input_output_error(),
        }
    }
}

/// What becomes of an operation.
pub(super) enum Verdict {
    Proceed,
    /// Do nothing, answer the error.
    Fail(Error),
    /// Write a part, answer an error.
    Short,
    /// Write what is there.
    Lose,
    /// Read, and answer wrong bytes.
    Misread(Fault),
    /// Power is lost during this operation: its effect may reach the disk, but is not durable for
    /// certain, and the answer is the error of the dead.
    LastGasp,
}

/// One life of a user of the disk. A crash or a kill ends it.
#[derive(Debug, Default)]
pub(super) struct Process {
    state: Mutex<State>,
    /// Locked paths.
    pub(super) locks: Mutex<BTreeSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct State {
    is_dead: bool,
    counts: [u64; OpKind::ALL.len()],
    mutations: u64,
    crash: Option<Crash>,
    rules: Vec<Rule>,
    handles: Handles,
    memory_limit: Option<u64>,
    /// The files whose operations failed, in order.
    hit: Vec<PathBuf>,
}

/// A rule that may be about some bytes of its files only.
#[derive(Debug)]
struct Rule {
    rule: FaultRule,
    bytes: Option<Range<u64>>,
}

/// Files and directories that the process has open.
#[derive(Debug)]
struct Handles {
    open: u64,
    open_max: u64,
    /// More cannot be open.
    limit: u64,
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            open: 0,
            open_max: 0,
            limit: u64::MAX,
        }
    }
}

/// When power is lost.
#[derive(Debug)]
struct Crash {
    /// Mutations until then, this one included.
    left: u64,
    /// Only mutations of paths that contain this count.
    path_contains: String,
}

impl Process {
    /// Counts an operation and decides what becomes of it. To be called while whatever the
    /// operation changes is locked, so that [`Process::die`] and then locking it leaves no
    /// operation half way.
    pub(super) fn admit(&self, kind: OpKind, path: &Path, mutates: bool) -> Result<Verdict> {
        self.admit_bytes(kind, path, mutates, None)
    }

    /// As [`Process::admit`], for an operation on some bytes of a file.
    pub(super) fn admit_bytes(
        &self,
        kind: OpKind,
        path: &Path,
        mutates: bool,
        bytes: Option<Range<u64>>,
    ) -> Result<Verdict> {
        let mut state = self.state.lock();
        if state.is_dead {
            return Err(dead());
        }
        state.counts[kind as usize] += 1;
        if mutates {
            state.mutations += 1;
            if let Some(crash) = &mut state.crash
                && path.to_string_lossy().contains(&crash.path_contains)
            {
                crash.left = crash.left.saturating_sub(1);
                if crash.left == 0 {
                    state.is_dead = true;
                    return Ok(Verdict::LastGasp);
                }
            }
        }
        let fault = state.fault(kind, path, bytes);
        Ok(match fault.or_else(|| state.refusal(kind, path)) {
            None => Verdict::Proceed,
            Some(Fault::ShortWrite) if kind == OpKind::Write => Verdict::Short,
            Some(Fault::Lost) if kind == OpKind::Write => Verdict::Lose,
            Some(fault @ (Fault::FlippedBit | Fault::WrongPlace | Fault::Stale))
                if kind == OpKind::Read =>
            {
                Verdict::Misread(fault)
            }
            Some(fault) => Verdict::Fail(fault.error()),
        })
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        if self.is_dead() {
            return Err(dead());
        }
        Ok(())
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state.lock().is_dead
    }

    pub(super) fn die(&self) {
        self.state.lock().is_dead = true;
    }

    pub(super) fn add_rule(&self, rule: FaultRule, bytes: Option<Range<u64>>) {
        self.state.lock().rules.push(Rule { rule, bytes });
    }

    /// Something has been opened.
    pub(super) fn opened(&self) {
        let handles = &mut self.state.lock().handles;
        handles.open += 1;
        handles.open_max = handles.open_max.max(handles.open);
    }

    /// Something has been closed.
    pub(super) fn closed(&self) {
        self.state.lock().handles.open -= 1;
    }

    pub(super) fn limit_handles(&self, limit: u64) {
        self.state.lock().handles.limit = limit;
    }

    pub(super) fn handles(&self) -> u64 {
        self.state.lock().handles.open
    }

    pub(super) fn handles_max(&self) -> u64 {
        self.state.lock().handles.open_max
    }

    pub(super) fn limit_memory(&self, bytes: u64) {
        self.state.lock().memory_limit = Some(bytes);
    }

    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.state.lock().memory_limit
    }

    pub(super) fn hit(&self) -> Vec<PathBuf> {
        self.state.lock().hit.clone()
    }

    pub(super) fn clear_rules(&self) {
        self.state.lock().rules.clear();
    }

    pub(super) fn crash_at(&self, path_contains: &str, mutation: u64) {
        self.state.lock().crash = Some(Crash {
            left: mutation.max(1),
            path_contains: path_contains.to_owned(),
        });
    }

    pub(super) fn mutations(&self) -> u64 {
        self.state.lock().mutations
    }

    pub(super) fn count(&self, kind: OpKind) -> u64 {
        self.state.lock().counts[kind as usize]
    }

    pub(super) fn count_all(&self) -> u64 {
        self.state.lock().counts.iter().sum()
    }
}

impl State {
    /// The fault of the first rule whose turn it is; all rules count the operation.
    fn fault(&mut self, kind: OpKind, path: &Path, at: Option<Range<u64>>) -> Option<Fault> {
        let mut found = None;
        let touches = |bytes: &Range<u64>| {
            let at = at.as_ref();
            at.is_some_and(|at| at.start < bytes.end && bytes.start < at.end)
        };
        for Rule { rule, bytes } in &mut self.rules {
            let matches = rule.kind.is_none_or(|wanted| wanted == kind)
                && path.to_string_lossy().contains(&rule.path_contains)
                && bytes.as_ref().is_none_or(touches);
            if !matches {
                continue;
            }
            rule.nth = rule.nth.saturating_sub(1);
            if rule.nth == 0 && rule.times > 0 {
                rule.times -= 1;
                found = found.or(Some(rule.fault));
            }
        }
        self.rules.retain(|rule| rule.rule.times > 0);
        if found.is_some() {
            self.hit.push(path.to_owned());
        }
        found
    }

    /// What needs a handle fails when there is none left.
    fn refusal(&mut self, kind: OpKind, path: &Path) -> Option<Fault> {
        let needs = matches!(
            kind,
            OpKind::Open | OpKind::List | OpKind::Lock | OpKind::CreateDir
        );
        if !needs || self.handles.open < self.handles.limit {
            return None;
        }
        self.hit.push(path.to_owned());
        Some(Fault::Emfile)
    }
}
