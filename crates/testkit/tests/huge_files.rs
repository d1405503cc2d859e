//! Files of terabytes whose maps call nearly all of it allocated, and page numbers near the end.

use inkstone_testkit::faults::huge::{Case, run};

/// Each row that was written after a page low in the file had been freed walked over every space
/// map.
#[test]
fn a_page_is_found_in_a_full_terabyte() {
    run(Case::Terabyte).unwrap();
}

/// The number after the last one is 0, to which every file has grown: the search for a page went on
/// for ever.
#[test]
fn page_numbers_come_to_an_end() {
    run(Case::NearTheEnd).unwrap();
}

#[test]
fn the_last_free_pages_are_found_wherever_they_lie() {
    run(Case::HoleInTheMiddle).unwrap();
}
