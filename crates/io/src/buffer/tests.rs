use super::*;

#[test]
fn buffers_are_zeroed_aligned_and_of_the_length_asked_for() {
    for length in [
        0,
        1,
        4095,
        4096,
        16384,
        MAPPED_BYTES_MIN,
        MAPPED_BYTES_MIN + 5,
    ] {
        let mut buffer = AlignedBuffer::zeroed(length);
        assert_eq!(buffer.len(), length);
        assert_eq!(buffer.as_ptr().addr() % DIRECT_ALIGNMENT, 0);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer.fill(7);
        assert!(buffer.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn untouched_large_buffers_cost_nothing() {
    // More than the machine has: only a mapping that is not touched can be this large.
    let mut buffer = AlignedBuffer::zeroed(1 << 40);
    buffer[1 << 39] = 1;
    assert_eq!(buffer[(1 << 39) - 1], 0);
}

#[test]
fn impossible_sizes_are_errors() {
    for length in [usize::MAX, isize::MAX as usize, 1 << 60] {
        let error = AlignedBuffer::try_zeroed(length).expect_err("no such memory");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
}

#[test]
fn transfers_are_checked() {
    let buffer = AlignedBuffer::zeroed(8192);
    assert!(check_transfer(true, &buffer, 4096).is_ok());
    assert!(check_transfer(false, &buffer[1..7], 3).is_ok());
    assert!(check_transfer(true, &buffer[1..4097], 0).is_err());
    assert!(check_transfer(true, &buffer[..512], 0).is_err());
    assert!(check_transfer(true, &buffer, 512).is_err());
    assert!(check_transfer(false, &buffer, u64::MAX).is_err());
    assert!(check_transfer(false, &buffer, i64::MAX as u64 - 5).is_err());
}

#[test]
fn what_is_worth_huge_pages_begins_at_one() {
    for length in [HUGE_MAPPING_BYTES_MIN, 5 * HUGE_MAPPING_BYTES_MIN + 4096] {
        let mut buffer = AlignedBuffer::zeroed(length);
        assert_eq!(buffer.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        assert_eq!(
            (buffer.len(), buffer[0], buffer[length - 1]),
            (length, 0, 0)
        );
        buffer[0] = 1;
        buffer[length - 1] = 2;
        assert_eq!((buffer[0], buffer[length - 1]), (1, 2));
    }
}
