//! Placed pages: what a crash leaves, a full disk, and space that is used again.

use super::*;
use inkstone_format::image::Compression;
use std::collections::BTreeMap;

const PAGE_SIZE: usize = 16 << 10;
const SPACE: SpaceId = SpaceId(1);
const PLACED: Placement = Placement::Placed(Compression::Lz4);

fn placed() -> StoreOptions {
    StoreOptions {
        page_size: PAGE_SIZE as u32,
        ..options(Doublewrite::On, FlushMethod::ODirect)
    }
}

/// A page of this LSN: one of four lies in a unit, in two, in three, or in four.
fn image_of(id: PageId, lsn: u64) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    init_page(&mut bytes, id, PageType::Leaf);
    set_page_lsn(&mut bytes, Lsn(lsn));
    let mut random = Random(id.to_u64() ^ lsn << 20 | 1);
    let noise = 24 + 4050 * (random.next() % 5) as usize;
    for byte in &mut bytes[24..noise.min(PAGE_SIZE)] {
        *byte = random.next() as u8;
    }
    bytes
}

fn is_image(bytes: &[u8], id: PageId, lsn: u64) -> bool {
    bytes[4..] == image_of(id, lsn)[4..] && check_page(bytes, id).is_ok()
}

fn write_images(
    writer: &mut dyn crate::buffer::PageWriter,
    pages: &BTreeMap<u32, u64>,
) -> Result<()> {
    let ids = pages.iter().map(|(&page, &lsn)| (id(SPACE.0, page), lsn));
    write_pages(writer, ids)
}

fn write_pages(
    writer: &mut dyn crate::buffer::PageWriter,
    ids: impl Iterator<Item = (PageId, u64)> + Clone,
) -> Result<()> {
    let mut bytes: Vec<_> = ids.clone().map(|(id, lsn)| image_of(id, lsn)).collect();
    let images = bytes.iter_mut().zip(ids).map(|(bytes, (id, _))| PageImage {
        id,
        fresh: false,
        oldest: Lsn(0),
        again: false,
        landed: Default::default(),
        bytes,
    });
    writer.write(&mut images.collect::<Vec<_>>())
}

/// LSNs of a page: what a settled map names, and what was written since; 0: nothing.
#[derive(Clone, Debug, Default)]
struct Versions {
    settled: u64,
    since: Vec<u64>,
}

/// Writes and settles until something fails.
fn work(
    rig: &Rig,
    model: &mut BTreeMap<u32, Versions>,
    random: &mut Random,
    from: u64,
) -> Result<()> {
    let mut writer = rig.store.writer()?;
    for lsn in from..from + 9 {
        let count = 1 + random.below(8);
        let batch: BTreeMap<u32, u64> =
            (0..count).map(|_| (random.below(24) as u32, lsn)).collect();
        for &page in batch.keys() {
            model.entry(page).or_default().since.push(lsn);
        }
        write_images(&mut *writer, &batch)?;
        if random.below(3) == 0 {
            rig.spaces.settle_places(0)?;
            for versions in model.values_mut() {
                versions.settled = versions.since.last().copied().unwrap_or(versions.settled);
                versions.since.clear();
            }
        }
    }
    Ok(())
}

/// Each page is whole, as settled or as written since. What is there is settled now.
fn check(rig: &Rig, model: &mut BTreeMap<u32, Versions>) {
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    for (&page, versions) in model.iter_mut() {
        let read = rig.store.read(id(SPACE.0, page), &mut bytes);
        let found = if read.is_ok() { page_lsn(&bytes).0 } else { 0 };
        let known = found == versions.settled || versions.since.contains(&found);
        let whole = found == 0 || is_image(&bytes, id(SPACE.0, page), found);
        assert!(
            known && whole,
            "page {page}, {versions:?}: {read:?}, LSN {found}"
        );
        versions.since = Vec::new();
        versions.settled = found;
    }
}

#[test]
fn whatever_a_crash_leaves_is_a_map_of_whole_images() {
    let mut used_again = 0;
    for seed in 1..=6 {
        for at in 0.. {
            let mut random = Random(seed);
            let (disk, mut model) = (Disk::new(), BTreeMap::new());
            let rig = Rig::open(&disk, placed()).unwrap();
            rig.spaces.create(SPACE, 4, PLACED).unwrap();
            disk.set_fault(Fault::PowerAt(at));
            let worked = work(&rig, &mut model, &mut random, 1);
            drop(rig);
            let finished = worked.is_ok();
            let mut random = Random(seed * 1000 + at + 1);
            // The next process goes on from what is left, perhaps without a loss of power, and
            // loses power itself.
            for round in 1..4 {
                if random.below(3) > 0 {
                    disk.power_loss(&mut random);
                } else {
                    disk.set_fault(Fault::None);
                }
                let rig = Rig::open(&disk, placed()).unwrap();
                check(&rig, &mut model);
                disk.set_fault(Fault::PowerAt(random.below(30)));
                used_again += u64::from(work(&rig, &mut model, &mut random, 100 * round).is_ok());
            }
            if finished {
                break;
            }
        }
    }
    assert!(used_again > 0, "no process came to the end of its work");
}

#[test]
fn on_a_full_disk_pages_stay_where_they_are() {
    let disk = Disk::new();
    let rig = Rig::open(&disk, placed()).unwrap();
    let file = rig.spaces.create(SPACE, 4, PLACED).unwrap();
    let mut writer = rig.store.writer().unwrap();
    let all: BTreeMap<u32, u64> = (0..20).map(|page| (page, 7)).collect();
    write_images(&mut *writer, &all).unwrap();
    let bytes = file.placed().unwrap().file_bytes();
    disk.set_capacity(disk.bytes(file.path()).len() as u64);
    let mut failed = false;
    for lsn in 8..200 {
        let batch = all.keys().map(|&page| (page, lsn)).collect();
        if let Err(error) = write_images(&mut *writer, &batch) {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            failed = true;
        }
    }
    assert!(failed, "the disk was never full");
    let mut buffer = AlignedBuffer::zeroed(PAGE_SIZE);
    for &page in all.keys() {
        rig.store.read(id(SPACE.0, page), &mut buffer).unwrap();
    }
    disk.set_capacity(u64::MAX);
    let batch = all.keys().map(|&page| (page, 300)).collect();
    write_images(&mut *writer, &batch).unwrap();
    assert!(file.placed().unwrap().file_bytes() >= bytes);
}

#[test]
fn a_file_stays_near_what_lives_in_it() {
    let rig = Rig::open(&Disk::new(), placed()).unwrap();
    let file = rig.spaces.create(SPACE, 4, PLACED).unwrap();
    let mut writer = rig.store.writer().unwrap();
    let mut random = Random(5);
    let all: BTreeMap<u32, u64> = (0..600).map(|page| (page, 1)).collect();
    write_images(&mut *writer, &all).unwrap();
    // What the pages were promised and did not need is given back, as at a checkpoint.
    rig.spaces.settle_places(0).unwrap();
    for lsn in 2..400 {
        let batch = (0..24).map(|_| (random.below(600) as u32, lsn)).collect();
        write_images(&mut *writer, &batch).unwrap();
        if lsn % 20 == 0 {
            rig.spaces.settle_places(0).unwrap();
        }
    }
    let placed = file.placed().unwrap();
    let (live, bytes) = (placed.live_bytes(), placed.file_bytes());
    // Some wait for the map, whatever the file's size.
    let most = live * 13 / 10 + (1 << 20);
    assert!(bytes <= most, "{bytes} bytes for {live} that live");
}

#[test]
fn images_side_by_side_come_in_one_read() {
    let rig = Rig::open(&Disk::new(), placed()).unwrap();
    rig.spaces.create(SPACE, 64, PLACED).unwrap();
    let mut writer = rig.store.writer().unwrap();
    let (first, later) = (2..12, 20..26);
    for pages in [first.clone(), later.clone()] {
        let batch = pages.map(|page| (page, 7)).collect();
        write_images(&mut *writer, &batch).unwrap();
    }
    let placed_at = |page| {
        let file = rig.spaces.open(SPACE).unwrap();
        file.placed().unwrap().place(PageNo(page))
    };
    let at = u64::from(placed_at(5).unit) * 4096;
    rig.disk
        .damage(&rig.spaces.path(SPACE), at as usize + 100, &[1, 2, 3]);

    let ids: Vec<PageId> = first.chain(later).map(|page| id(SPACE.0, page)).collect();
    let mut buffers: Vec<_> = ids
        .iter()
        .map(|_| AlignedBuffer::zeroed(PAGE_SIZE))
        .collect();
    let mut pages: Vec<(PageId, &mut [u8])> = (ids.iter().zip(&mut buffers))
        .map(|(&id, buffer)| (id, &mut buffer[..]))
        .collect();
    let results = rig.store.read_many(&mut pages);
    for ((result, &page), buffer) in results.iter().zip(&ids).zip(&buffers) {
        assert_eq!(result.is_ok(), page.page != PageNo(5), "{page}: {result:?}");
        assert!(result.is_err() || is_image(buffer, page, 7), "{page}");
    }
    // Each batch lies together, and the damaged page is looked at once more.
    assert!(rig.count(Counter::DataReadCalls) <= 3);
}

/// A file of 600 pages, in three blocks of its map, that was settled.
fn settled() -> Disk {
    let disk = Disk::new();
    let rig = Rig::open(&disk, placed()).unwrap();
    rig.spaces.create(SPACE, 4, PLACED).unwrap();
    let file = rig.spaces.open(SPACE).unwrap();
    file.ensure_pages(600).unwrap();
    for lsn in 1..4 {
        let all: BTreeMap<u32, u64> = (0..600).map(|page| (page, lsn)).collect();
        write_images(&mut *rig.store.writer().unwrap(), &all).unwrap();
        rig.spaces.settle_places(0).unwrap();
    }
    disk
}

fn map_path() -> std::path::PathBuf {
    Path::new(DIRECTORY).join("t00000001.places")
}

/// Changes bytes of the map.
fn change(disk: &Disk, f: impl Fn(&mut [u8])) {
    let mut bytes = disk.bytes(&map_path());
    f(&mut bytes);
    disk.damage(&map_path(), 0, &bytes);
}

/// Which of the pages are read as they were written last; the others give an error.
fn readable(disk: &Disk) -> Vec<u32> {
    let rig = Rig::open(disk, placed()).unwrap();
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    let mut is_there = |page: u32| match rig.store.read(id(SPACE.0, page), &mut bytes) {
        Ok(()) => {
            assert!(is_image(&bytes, id(SPACE.0, page), 3), "page {page}");
            true
        }
        Err(error) => {
            assert!(error.to_string().contains("t00000001.places"), "{error}");
            false
        }
    };
    (0..600).filter(|&page| is_there(page)).collect()
}

/// With one of its slots nothing is lost, whichever it is and whatever became of it: there was a
/// time when the other one told of an older place, and old rows were read.
#[test]
fn each_slot_of_a_block_stands_for_the_other() {
    for slot in 0..6 {
        let disk = settled();
        let at = (1 + slot) * 4096;
        let whole = disk.bytes(&map_path());
        change(&disk, |bytes| bytes[at + 700] ^= 1);
        assert_eq!(readable(&disk).len(), 600, "slot {slot} is damaged");
        change(&disk, |bytes| bytes[at..at + 4096].fill(0));
        assert_eq!(readable(&disk).len(), 600, "slot {slot} is empty");
        change(&disk, |bytes| {
            bytes[at..at + 4096].copy_from_slice(&whole[4096..8192]);
        });
        assert_eq!(readable(&disk).len(), 600, "slot {slot} is another's");
    }
}

#[test]
fn a_lost_block_of_the_map_loses_its_pages_alone() {
    let disk = settled();
    change(&disk, |bytes| {
        bytes[3 * 4096 + 100] ^= 1;
        bytes[4 * 4096 + 2000] ^= 1;
    });
    let others: Vec<u32> = (0..255).chain(510..600).collect();
    assert_eq!(readable(&disk), others);
    // What is written anew is there again, also for the next process.
    let rig = Rig::open(&disk, placed()).unwrap();
    let pages = BTreeMap::from([(3, 3), (300, 3)]);
    write_images(&mut *rig.store.writer().unwrap(), &pages).unwrap();
    rig.spaces.settle_places(0).unwrap();
    drop(rig);
    let mut found = readable(&disk);
    assert!(found.contains(&300));
    found.retain(|&page| page != 300);
    assert_eq!(found, others);
}

#[test]
fn a_missing_map_is_refused() {
    let disk = settled();
    disk.directory(DIRECTORY)
        .remove("t00000001.places")
        .unwrap();
    let rig = Rig::open(&disk, placed()).unwrap();
    let error = rig.spaces.open(SPACE).unwrap_err().to_string();
    assert!(error.contains("t00000001.places, is missing"), "{error}");
}

/// A cleaner and a checkpoint settle the same file. One took for durable what the other was still
/// writing.
#[test]
fn what_two_threads_settle_is_durable_when_each_goes_on() {
    for seed in 1..60 {
        let mut random = Random(seed);
        let disk = Disk::new();
        let rig = Rig::open(&disk, placed()).unwrap();
        let file = rig.spaces.create(SPACE, 4, PLACED).unwrap();
        file.ensure_pages(200).unwrap();
        disk.set_fault(Fault::PowerAt(20 + random.below(300)));
        let life = |first: u32| {
            let mut settled = 0;
            for lsn in 1..30 {
                let pages: BTreeMap<u32, u64> =
                    (first..first + 3).map(|page| (page, lsn)).collect();
                let written = rig.store.writer();
                let written = written.and_then(|mut writer| write_images(&mut *writer, &pages));
                match written.and_then(|()| rig.spaces.settle_places(0)) {
                    Ok(()) => settled = lsn,
                    Err(_) => break,
                }
            }
            settled
        };
        let settled = std::thread::scope(|scope| {
            let other = scope.spawn(|| life(100));
            [life(0), other.join().unwrap()]
        });
        drop((file, rig));
        disk.power_loss(&mut random);
        let rig = Rig::open(&disk, placed()).unwrap();
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        for (first, settled) in [0, 100].into_iter().zip(settled) {
            for page in first..first + 3 {
                let read = rig.store.read(id(SPACE.0, page), &mut bytes);
                let found = read.map_or(0, |()| page_lsn(&bytes).0);
                assert!(
                    found >= settled,
                    "seed {seed}, page {page}: LSN {found}, and {settled} was settled"
                );
            }
        }
    }
}

/// A checkpoint needs the maps of all tables: of thousands one thread would wait for each sync.
#[test]
fn maps_of_many_tables_are_settled_or_the_failure_is_told() {
    const SPACES: u32 = 60;
    let (mut settled, mut failed) = (0, 0);
    for seed in 1..30 {
        let mut random = Random(seed);
        let disk = Disk::new();
        let rig = Rig::open(&disk, placed()).unwrap();
        for space in 1..=SPACES {
            rig.spaces.create(SpaceId(space), 4, PLACED).unwrap();
        }
        let mut writer = rig.store.writer().unwrap();
        for space in 1..=SPACES {
            write_pages(&mut *writer, std::iter::once((id(space, 1), 7))).unwrap();
        }
        disk.set_fault(Fault::PowerAt(random.below(1000)));
        let result = rig.spaces.settle_places(0);
        drop((writer, rig));
        disk.power_loss(&mut random);
        if result.is_err() {
            failed += 1;
            continue;
        }
        settled += 1;
        let rig = Rig::open(&disk, placed()).unwrap();
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        for space in 1..=SPACES {
            rig.store.read(id(space, 1), &mut bytes).unwrap();
            assert!(is_image(&bytes, id(space, 1), 7), "seed {seed}, {space}");
        }
    }
    assert!(
        settled > 2 && failed > 2,
        "{settled} settled, {failed} failed"
    );
}

/// Whatever page is promised is written on a full disk, again and again, and after a crash.
#[test]
fn what_is_allocated_is_written_on_a_full_disk() {
    for compression in [Compression::None, Compression::Lz4] {
        let disk = Disk::new();
        let mut rig = Rig::open(&disk, placed()).unwrap();
        let kind = Placement::Placed(compression);
        let file = rig.spaces.create(SPACE, 4, kind).unwrap();
        file.ensure_pages(300).unwrap();
        disk.set_capacity(0);
        file.ensure_pages(400).unwrap_err();
        drop(file);
        let mut random = Random(11);
        for lsn in 1..60 {
            write_all(&rig, 300, lsn, &mut random);
            if lsn % 7 == 0 {
                drop(rig);
                disk.power_loss(&mut random);
                rig = Rig::open(&disk, placed()).unwrap();
                rig.spaces.open(SPACE).unwrap().reach_pages(300).unwrap();
            }
        }
    }
}

/// Writes each of so many pages, in any order; a write that finds little room writes some.
fn write_all(rig: &Rig, pages: u32, lsn: u64, random: &mut Random) {
    let file = rig.spaces.open(SPACE).unwrap();
    let mut writer = rig.store.writer().unwrap();
    let mut left: Vec<u32> = (0..pages).collect();
    while !left.is_empty() {
        let chosen = (0..32).map(|_| left[random.below(left.len() as u64) as usize]);
        let batch: BTreeMap<u32, u64> = chosen.map(|page| (page, lsn)).collect();
        if let Err(error) = write_images(&mut *writer, &batch) {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        }
        let before = left.len();
        left.retain(|&page| file.placed().unwrap().place(PageNo(page)).lsn != Lsn(lsn));
        assert!(left.len() < before, "none of {batch:?} was written");
    }
}

/// A page that lies in one unit to four, as its LSN says.
fn image_by_lsn(id: PageId, lsn: u64) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    init_page(&mut bytes, id, PageType::Leaf);
    set_page_lsn(&mut bytes, Lsn(lsn));
    let mut random = Random(id.to_u64() ^ lsn << 20 | 1);
    let noise = 24 + 4000 * units_by_lsn(lsn) as usize;
    for byte in &mut bytes[24..noise] {
        *byte = random.next() as u8;
    }
    bytes
}

fn units_by_lsn(lsn: u64) -> u64 {
    1 + lsn % 4
}

fn write_by_lsn(rig: &Rig, page: u32, lsn: u64) -> Result<()> {
    let id = id(SPACE.0, page);
    let mut bytes = image_by_lsn(id, lsn);
    let image = PageImage {
        id,
        fresh: false,
        oldest: Lsn(0),
        again: false,
        landed: Default::default(),
        bytes: &mut bytes,
    };
    rig.store.writer()?.write(&mut [image])
}

const TIGHT_PAGES: u32 = 150;

/// A file of some pages that is full, on a full disk.
fn tight(disk: &Disk, random: &mut Random) -> (Rig, BTreeMap<u32, Versions>) {
    let rig = Rig::open(disk, placed()).unwrap();
    let file = rig.spaces.create(SPACE, 4, PLACED).unwrap();
    file.ensure_pages(TIGHT_PAGES).unwrap();
    for page in 0..TIGHT_PAGES {
        write_by_lsn(&rig, page, 4).unwrap();
    }
    // What the pages were promised is cut off.
    rig.spaces.settle_places(0).unwrap();
    disk.set_capacity(0);
    let written = Versions {
        settled: 4,
        since: Vec::new(),
    };
    let mut model = (0..TIGHT_PAGES)
        .map(|page| (page, written.clone()))
        .collect();
    change_lengths(&rig, &mut model, random, 100).unwrap();
    (rig, model)
}

/// Pages become shorter and longer, as long as there are units for them outside the hole.
fn change_lengths(
    rig: &Rig,
    model: &mut BTreeMap<u32, Versions>,
    random: &mut Random,
    from: u64,
) -> Result<()> {
    let file = rig.spaces.open(SPACE)?;
    let placed = file.placed().unwrap();
    let units = |bytes: u64| bytes / 4096;
    for round in from..from + 100 {
        let page = random.below(u64::from(TIGHT_PAGES)) as u32;
        let lsn = 4 * round + random.below(4);
        let needed = units(placed.live_bytes()) + 1 + 8 + units_by_lsn(lsn);
        if needed > units(placed.file_bytes()) {
            continue;
        }
        model.entry(page).or_default().since.push(lsn);
        write_by_lsn(rig, page, lsn)?;
    }
    rig.spaces.settle_places(1000)
}

fn check_lengths(rig: &Rig, model: &mut BTreeMap<u32, Versions>) {
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    for (&page, versions) in model.iter_mut() {
        let id = id(SPACE.0, page);
        rig.store.read(id, &mut bytes).unwrap();
        let lsn = page_lsn(&bytes).0;
        let known = lsn == versions.settled || versions.since.contains(&lsn);
        assert!(known, "page {page}, {versions:?}: LSN {lsn}");
        assert!(
            bytes[4..] == image_by_lsn(id, lsn)[4..],
            "page {page}, LSN {lsn}"
        );
        (versions.settled, versions.since) = (lsn, Vec::new());
    }
}

#[test]
fn images_that_become_long_find_scattered_units() {
    for seed in 1..=20 {
        let (disk, mut random) = (Disk::new(), Random(seed));
        let (rig, mut model) = tight(&disk, &mut random);
        for round in 1..10 {
            change_lengths(&rig, &mut model, &mut random, 1000 * round).unwrap();
            check_lengths(&rig, &mut model);
        }
        let moved = rig.count(Counter::ImagesMoved);
        assert!(moved > 0, "seed {seed}: free units were never scattered");
    }
}

#[test]
fn whatever_a_crash_leaves_of_moves_is_whole() {
    for at in (0..1500).step_by(13) {
        let (disk, mut random) = (Disk::new(), Random(at + 1));
        let (rig, mut model) = tight(&disk, &mut random);
        disk.set_fault(Fault::PowerAt(at));
        let _ = change_lengths(&rig, &mut model, &mut random, 1000);
        drop(rig);
        for round in 2..5 {
            disk.power_loss(&mut random);
            let rig = Rig::open(&disk, placed()).unwrap();
            rig.spaces
                .open(SPACE)
                .unwrap()
                .reach_pages(TIGHT_PAGES)
                .unwrap();
            check_lengths(&rig, &mut model);
            disk.set_fault(Fault::PowerAt(random.below(300)));
            let _ = change_lengths(&rig, &mut model, &mut random, 1000 * round);
        }
    }
}
