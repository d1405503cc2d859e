//! Search by prefixes: text that is typed, the first fields of a key, bytes; forward and backward.
//!
//! `cargo run --release --example prefix_search`

use inkstone::typed::{Key, Row, TypedTable, starting_with};
use inkstone::{Database, Isolation, Options, Result, Transaction};

/// A path in a site. Its first fields are a prefix: `starting_with(("inkstone".to_owned(),))`.
#[derive(Key, Clone, Debug, PartialEq)]
struct PageKey {
    site: String,
    path: Vec<u8>,
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Page {
    title: String,
    visits: u64,
}

struct Site {
    pages: TypedTable<PageKey, Page>,
}

impl Site {
    fn open(db: &Database) -> Result<Self> {
        let pages = TypedTable::<PageKey, Page>::builder("pages")
            // Lower case in the index alone: the search does not care about case, rows keep theirs.
            .index("by_title", |_, page| page.title.to_lowercase())
            .index("by_visits", |_, page| page.visits)
            .open(db)?;
        Ok(Self { pages })
    }

    /// The first titles that begin with what was typed.
    fn complete(&self, txn: &Transaction, typed: &str, count: usize) -> Result<Vec<String>> {
        let typed = typed.to_lowercase();
        let entries = self
            .pages
            .by_index::<String>(txn, "by_title", starting_with(&typed[..]))?;
        let keys: Vec<_> = entries
            .take(count)
            .map(|entry| Ok(entry?.1))
            .collect::<Result<_>>()?;
        let pages = self.pages.get_many(txn, &keys)?;
        Ok(pages.into_iter().flatten().map(|page| page.title).collect())
    }
}

fn main() -> Result<()> {
    let db = Database::temporary(Options::default())?;
    let site = Site::open(&db)?;
    db.transact(Isolation::ReadCommitted, |txn| {
        for n in 0..20_000u64 {
            let site_name = ["inkstone", "inkwell"][(n % 2) as usize].to_owned();
            let key = PageKey {
                site: site_name,
                path: format!("/docs/{n:05}").into_bytes(),
            };
            let title = format!(
                "{} {n}",
                ["Über uns", "Storage", "storm", "Ink"][(n % 4) as usize]
            );
            site.pages.insert(
                txn,
                &key,
                &Page {
                    title,
                    visits: n * 7919 % 20_000,
                },
            )?;
        }
        Ok::<_, inkstone::Error>(())
    })?;

    let txn = db.begin(Isolation::RepeatableRead)?;
    for (typed, found) in [("STO", 5), ("üb", 5), ("storage 1999", 2), ("x", 0)] {
        let titles = site.complete(&txn, typed, 5)?;
        println!("{typed:?}: {titles:?}");
        assert_eq!(titles.len(), found);
        assert!(
            titles
                .iter()
                .all(|title| title.to_lowercase().starts_with(&typed.to_lowercase()))
        );
    }

    let of_inkwell = starting_with(("inkwell".to_owned(),));
    let count = site.pages.range(&txn, of_inkwell.clone())?.count();
    let last = site
        .pages
        .range_backward(&txn, of_inkwell)?
        .next()
        .transpose()?;
    println!(
        "{count} pages of inkwell, the last one {:?}",
        last.as_ref().map(|(_, p)| &p.title)
    );
    assert_eq!(
        (count, last.map(|(key, _)| key.path)),
        (10_000, Some(b"/docs/19999".to_vec()))
    );

    let most: Vec<u64> = site
        .pages
        .by_index_backward::<u64>(&txn, "by_visits", ..)?
        .take(3)
        .map(|entry| Ok(entry?.0))
        .collect::<Result<_>>()?;
    println!("most visits: {most:?}");
    assert_eq!(most, [19_999, 19_998, 19_997]);

    // Without types: a prefix of bytes is the range from it to the next one that is as long.
    let bytes = db.create_table("bytes", &[])?;
    db.transact(Isolation::ReadCommitted, |txn| {
        txn.insert_many(
            &bytes,
            [
                (&b"a"[..], b""),
                (b"ink", b""),
                (b"ink\xff", b""),
                (b"inl", b""),
            ],
        )
    })?;
    let txn = db.begin(Isolation::RepeatableRead)?;
    assert_eq!(txn.range(&bytes, &b"ink"[..]..&b"inl"[..])?.count(), 2);
    // The greatest key below a place.
    let below = txn
        .range_backward(&bytes, ..&b"ink\x80"[..])?
        .next()
        .transpose()?;
    assert_eq!(below.map(|(key, _)| key), Some(b"ink".to_vec()));
    Ok(())
}
