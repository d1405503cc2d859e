//! Profiles: features that lead to a certain kind of trouble. In the usual mix what some bugs need
//! comes together once in a hundred runs; with a profile it does in a few.

use super::{Disk, Ending, Features};
use clap::ValueEnum;
use inkstone::internals::options::{BulkLogging, Doublewrite, Durability, FlushMethod};

/// What the runs of a campaign have in common. The rest is as the seed says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Transactions whose undo is in its file, with ends that need not be durable.
    LargeTransactions,
    /// Large transactions whose undo is saved every few rows.
    SavedUndo,
    /// Loads of which the log lacks the rows.
    Loads,
    /// Tables that are compacted again and again.
    Compactions,
    /// Power losses amid writes of pages, on a disk that tears them.
    TornPages,
}

impl Profile {
    /// Changes the features of a seed.
    pub(super) fn change(self, features: &mut Features) {
        match self {
            Self::LargeTransactions => {
                (features.giant, features.heavy, features.bulk) = (true, false, true);
                (features.long_values, features.spells) = (false, false);
                features.durabilities = vec![Durability::Lazy];
                features.version_store_memory = vec![1 << 20];
                features.clients = features.clients.min(2);
                features.tables_max = 1;
            }
            Self::SavedUndo => {
                (features.giant, features.heavy, features.bulk) = (true, false, true);
                (features.long_values, features.spells) = (false, false);
                features.log_file_size = 16 << 20;
                features.bulk_loggings = vec![BulkLogging::Full];
            }
            Self::Loads => {
                (features.giant, features.heavy) = (false, false);
                features.bulk_loggings = vec![BulkLogging::Minimal];
                features.spells = false;
            }
            Self::Compactions => {
                (features.giant, features.heavy, features.spells) = (false, false, false);
                (features.deletes, features.long_values) = (true, true);
                (features.upkeep_percent, features.compaction_percent) = (10, 50);
                features.tables_max = features.tables_max.min(2);
            }
            Self::TornPages => {
                (features.disk, features.volatile_cache) = (Disk::Tears, true);
                features.doublewrite = vec![Doublewrite::On];
                features.skip_fresh = vec![true];
                features.flush_methods = vec![FlushMethod::ODirect];
                features.pool_pages = vec![64];
                features.placements = Vec::new();
                features.ends = vec![Ending::PowerLossInside];
                features.crash_within = vec![300];
                features.spells = false;
            }
        }
    }
}
