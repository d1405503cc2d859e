//! Tables that say themselves where their pages are kept, and how they are compressed.

mod failure_support;

use failure_support::*;
use inkstone::{Error, Options, PageCompression, PagePlacement, TableOptions};
use inkstone_io::sim::SimVfs;

const IN_PLACE: (PagePlacement, PageCompression) = (PagePlacement::InPlace, PageCompression::None);
const PLACED: (PagePlacement, PageCompression) = (PagePlacement::Placed, PageCompression::None);
const SMALL: (PagePlacement, PageCompression) = (PagePlacement::Placed, PageCompression::Zstd);
const PACKED: (PagePlacement, PageCompression) = (PagePlacement::Placed, PageCompression::Lz4);

fn defaults((page_placement, page_compression): (PagePlacement, PageCompression)) -> Options {
    Options {
        page_placement,
        page_compression,
        page_size: 16 << 10,
        ..small()
    }
}

fn kind_of(table: &inkstone::Table) -> (PagePlacement, PageCompression) {
    (table.page_placement(), table.page_compression())
}

fn is_placed(vfs: &SimVfs, table: &inkstone::Table) -> bool {
    let map = table.path().with_extension("places");
    vfs.files().contains(&map)
}

/// With each default: a table of each kind, and one that says nothing. Each is what it was made as
/// behind a kill, power loss and a close, whatever the default is then, and has its rows.
#[test]
fn a_table_stays_what_it_was_made_as() {
    for default in [IN_PLACE, PLACED, PACKED, SMALL] {
        let disk = SimVfs::new(3);
        let db = open_sim(&disk, defaults(default)).unwrap();
        let mut tables = vec![("by_default", default)];
        db.create_table("by_default", &["tree"]).unwrap();
        for (name, kind) in [
            ("in_place", IN_PLACE),
            ("placed", PLACED),
            ("packed", PACKED),
            ("small", SMALL),
        ] {
            let options = TableOptions::new().page_placement(kind.0);
            let options = options.page_compression(kind.1);
            db.create_table_with(name, &["tree"], &options).unwrap();
            tables.push((name, kind));
        }
        for (name, _) in &tables {
            insert(&db, &db.table(name).unwrap(), 0..300, &[7; 900]).unwrap();
        }
        db.checkpoint().unwrap();
        for (name, _) in &tables {
            insert(&db, &db.table(name).unwrap(), 300..400, &[8; 900]).unwrap();
        }
        let look = |disk: &SimVfs, default, tables: &[(&str, _)]| {
            let db = open_sim(disk, defaults(default)).unwrap();
            for &(name, kind) in tables {
                let table = db.table(name).unwrap();
                assert_eq!(kind_of(&table), kind, "{name}");
                let shown = table.options().show();
                let placement = kind.0.to_string();
                assert_eq!(shown[0], ("page_placement", placement), "{name}");
                assert_eq!(
                    is_placed(disk, &table),
                    kind.0 == PagePlacement::Placed,
                    "{name}"
                );
                assert_eq!(rows(&db, &table).unwrap(), Vec::from_iter(0..400), "{name}");
                db.verify_table(&table).unwrap();
            }
            db
        };
        for other in [IN_PLACE, PACKED] {
            drop(look(&disk.kill(), other, &tables));
            let after = disk.crash(11);
            look(&after, other, &tables).close().unwrap();
            // Closed in order, and what the names mean is as it was told.
            let db = look(&after, default, &tables);
            db.rename_table("packed", "renamed").unwrap();
            db.replace_table("placed", "in_place").unwrap();
            assert_eq!(kind_of(&db.table("renamed").unwrap()), PACKED);
            assert_eq!(kind_of(&db.table("in_place").unwrap()), PLACED);
        }
    }
}

#[test]
fn what_a_table_leaves_open_the_database_says() {
    let cases = [
        (IN_PLACE, TableOptions::new(), IN_PLACE),
        (PACKED, TableOptions::new(), PACKED),
        (
            PACKED,
            TableOptions::new().page_placement(PagePlacement::InPlace),
            IN_PLACE,
        ),
        (
            PACKED,
            TableOptions::new().page_compression(PageCompression::None),
            PLACED,
        ),
        // The option of the database for compression, which its own placement has no use for.
        (
            (PagePlacement::InPlace, PageCompression::Lz4),
            TableOptions::new().page_placement(PagePlacement::Placed),
            PACKED,
        ),
        (
            IN_PLACE,
            TableOptions::new().page_compression(PageCompression::Lz4),
            PACKED,
        ),
        (
            IN_PLACE,
            TableOptions::new().page_compression(PageCompression::None),
            IN_PLACE,
        ),
    ];
    for (default, options, expected) in cases {
        let db = open_sim(&SimVfs::new(1), defaults(default)).unwrap();
        let table = db.create_table_with("t", &[], &options).unwrap();
        assert_eq!(kind_of(&table), expected, "{options:?} beside {default:?}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_and_makes_nothing() {
    let disk = SimVfs::new(1);
    let db = open_sim(&disk, defaults(PACKED)).unwrap();
    let before = disk.files();
    let mut options = TableOptions::new();
    options.set("page_placement", "in_place").unwrap();
    options.set("page_compression", "lz4").unwrap();
    let error = failed(db.create_table_with("t", &[], &options));
    assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    says(
        &error,
        &[
            "page_compression",
            "lz4",
            "in_place",
            "page_placement=placed",
        ],
    );
    assert_eq!(disk.files(), before);
    assert!(db.tables().unwrap().is_empty());

    says(
        &failed(options.set("page_compression", "much")),
        &["much", "lz4"],
    );
    let level = |level| TableOptions::new().page_compression_level(level);
    for (options, word) in [
        (level(3), "page_compression=lz4"),
        (level(0).page_compression(PageCompression::Zstd), "1 to 19"),
        (level(20).page_compression(PageCompression::Zstd), "1 to 19"),
    ] {
        let error = failed(db.create_table_with("t", &[], &options));
        says(&error, &["page_compression_level", word]);
    }
    let options_with_level = level(19).page_compression(PageCompression::Zstd);
    let table = db.create_table_with("level", &[], &options_with_level);
    assert_eq!(table.unwrap().options().page_compression_level, Some(19));
    db.drop_table("level").unwrap();
    says(
        &failed(options.set("page_size", "4k")),
        &["page_size", "page_placement"],
    );
    options.set("page_compression", "none").unwrap();
    let table = db.create_table_with("t", &[], &options).unwrap();
    assert_eq!(kind_of(&table), IN_PLACE);
}
