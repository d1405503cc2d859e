//! What a run of `--differential` leaves out, so that it looks behind a difference that is known.

/// A part of SQL that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Topic {
    /// Columns with collations of their own
    Collations,
    /// Character columns in keys
    TextKeys,
    /// AUTO_INCREMENT
    AutoIncrement,
    /// Generated columns
    Generated,
    /// Partitions
    Partitions,
    /// ALTER TABLE
    Alter,
    /// CHECK constraints
    Checks,
    /// CREATE .. SELECT and .. LIKE, CREATE INDEX, triggers, views, HANDLER, LOAD DATA, EXCHANGE
    /// PARTITION
    Objects,
    /// Transactions of several statements
    Transactions,
    /// XA transactions
    Xa,
    /// Restarts and kills of the server
    Restarts,
    /// Tables of Inkstone whose pages are placed or compressed
    Pages,
    /// Temporary tables
    Temporary,
    /// Cases of foreign keys
    ForeignKeys,
}

/// What is not left out.
#[derive(Clone, Debug)]
pub struct Topics(Vec<Topic>);

impl Topics {
    /// Everything but these.
    pub fn without(left_out: &[Topic]) -> Self {
        Self(left_out.to_vec())
    }

    /// True if it is not left out.
    pub fn has(&self, topic: Topic) -> bool {
        !self.0.contains(&topic)
    }
}
