//! Many pages in one go.

use super::*;

#[test]
fn adjacent_pages_come_in_one_read() {
    let rig = Rig::new(Doublewrite::Off, FlushMethod::ODirect);
    rig.spaces
        .create(SpaceId(1), 64, Placement::InPlace)
        .unwrap();
    rig.spaces
        .create(SpaceId(2), 8, Placement::InPlace)
        .unwrap();
    let places = [(1, 2..10), (1, 20..21), (1, 30..34), (2, 1..3)];
    let ids = places
        .into_iter()
        .flat_map(|(space, pages)| pages.map(move |n| id(space, n)));
    let mut ids: Vec<PageId> = ids.collect();
    let images: Vec<_> = ids.iter().map(|&id| (id, 7, true)).collect();
    write(&mut *rig.store.writer().unwrap(), &images).unwrap();
    rig.disk
        .damage(&rig.spaces.path(SpaceId(1)), 5 * PAGE + 100, &[1, 2, 3]);
    ids.push(id(2, 8));
    ids.push(id(3, 0));

    let mut buffers: Vec<_> = ids.iter().map(|_| AlignedBuffer::zeroed(PAGE)).collect();
    let mut pages: Vec<(PageId, &mut [u8])> = ids
        .iter()
        .zip(&mut buffers)
        .map(|(&id, buffer)| (id, &mut buffer[..]))
        .collect();
    let results = rig.store.read_many(&mut pages);
    assert_eq!(results.len(), ids.len());
    for ((result, &page), buffer) in results.iter().zip(&ids).zip(&buffers) {
        match (page.space.0, page.page.0) {
            (1, 5) | (2, 8) | (3, _) => assert!(result.is_err(), "{page}"),
            _ => assert!(result.is_ok() && is_page(buffer, page, 7), "{page}"),
        }
    }
    // Four runs, and a second look at the damaged page.
    assert_eq!(rig.count(Counter::DataReadCalls), 5);
}
