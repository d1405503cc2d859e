//! A database that is whole: what is left is to let it run.

use super::foundation::Foundation;
use super::locked::{Locks, Ownership};
use super::report::OpenReport;
use super::undone::Undone;
use super::unknown::{self, Unowned};
use crate::Result;
use crate::btree::Tree;
use crate::catalog::{CATALOG_ISOLATION, CATALOG_SPACE, Catalog};
use crate::control::ControlFile;
use crate::database::background::Background;
use crate::database::checkpoint::Checkpoints;
use crate::database::recovery_listener::RecoveryListener;
use crate::database::references::References;
use crate::database::{Database, Inner};
use crate::paranoid::paranoid;
use crate::recovery::RedoLeft;
use crate::sort::SortFile;
use crate::sync::atomic::AtomicU32;
use crate::sync::{HashMap, Instant, Mutex, OnceLock};
use crate::txn::Transaction;
use crate::txn::core::Core;
use inkstone_format::{Lsn, SpaceId};
use inkstone_io::process::Threaded;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Stage 7. All parts are joined, and files that no table has were removed or set aside. A new
/// database joins here. What is missing are the threads that work for it.
pub(super) struct Complete {
    inner: Inner,
}

/// The parts of a database.
pub(super) struct Joined {
    pub core: Arc<Core>,
    pub catalog: Tree,
    /// The next tablespace number.
    pub next_space: u32,
    /// Where the log of this run begins.
    pub run_start: Lsn,
    /// What is left of redo.
    pub left: Option<Arc<RedoLeft>>,
    pub report: OpenReport,
    pub foundation: Foundation,
    pub control: ControlFile,
    pub locks: Locks,
}

impl Undone {
    /// Removes tablespace files that no table has, or sets them aside.
    pub fn tidy(mut self) -> Result<Complete> {
        let unowned = self.remove_unowned()?;
        self.report.removed.extend(unowned.removed);
        let aside = self.core.storage.log.set_aside();
        self.report.set_aside.extend(aside);
        let Ownership {
            file, new, locks, ..
        } = self.ownership;
        let mut complete = Complete::join(Joined {
            core: self.core,
            catalog: self.catalog,
            next_space: new
                .next_space_id
                .0
                .max(self.highest_space.saturating_add(1)),
            run_start: self.outcome.end,
            left: self.outcome.left,
            report: self.report,
            foundation: self.foundation,
            control: file,
            locks,
        });
        let aside = complete.inner.set_aside(&unowned.unknown)?;
        complete.inner.report.set_aside.extend(aside);
        Ok(complete)
    }

    fn remove_unowned(&self) -> Result<Unowned> {
        let transaction = Transaction::begin_own(&self.core, CATALOG_ISOLATION)?;
        let tables = Catalog::new(&self.catalog, &transaction).all()?;
        let mut known: BTreeSet<SpaceId> = tables.iter().map(|table| table.space).collect();
        known.insert(CATALOG_SPACE);
        drop(transaction);
        let Foundation { files, site, .. } = &self.foundation;
        let unowned =
            unknown::remove_unowned(&*site.directory, files, &self.core, &self.outcome, &known)?;
        files.page_lsns().retain(&files.list()?);
        Ok(unowned)
    }
}

impl Complete {
    /// Joins the parts.
    pub fn join(parts: Joined) -> Self {
        let site = parts.foundation.site;
        let control = parts.control.current();
        let (uuid, checkpoint) = (control.uuid, control.checkpoint_lsn);
        paranoid!(
            parts.run_start >= checkpoint && parts.next_space >= control.next_space_id.0,
            "the run begins at LSN {} with tablespace {}, after a checkpoint at {checkpoint}",
            parts.run_start,
            parts.next_space
        );
        let inner = Inner {
            core: parts.core,
            vfs: site.vfs,
            sort_file: Arc::new(SortFile::new(site.directory.clone())),
            directory: site.directory,
            options: site.options.all,
            upkeep: site.options.upkeep,
            new_table: site.options.new_table,
            uuid,
            files: parts.foundation.files,
            catalog: parts.catalog,
            next_space: AtomicU32::new(parts.next_space),
            tables: Mutex::new(HashMap::default()),
            references: References::default(),
            ddl: Mutex::new(()),
            copying: Mutex::new(()),
            unkept: OnceLock::new(),
            checkpoints: Checkpoints::new(parts.control, parts.run_start),
            redo_left: parts.left,
            recovery_listener: RecoveryListener::new(parts.report.recovered.as_ref()),
            background: Mutex::new(None),
            report: parts.report,
            threaded: None,
            _locks: parts.locks,
        };
        Self { inner }
    }

    /// Starts the background threads. `begin`: when opening began.
    pub fn run(mut self, threaded: Threaded, begin: Instant) -> Result<Database> {
        self.inner.threaded = Some(threaded);
        self.inner.report.milliseconds = begin.elapsed().as_millis() as u64;
        let inner = Arc::new(self.inner);
        inner.sort_file.open()?;
        inner.core.storage.pool.start_cleaners()?;
        let before = inner.background.lock().replace(Background::start(&inner)?);
        paranoid!(before.is_none(), "two threads purge one database");
        Ok(Database::new(inner))
    }
}
