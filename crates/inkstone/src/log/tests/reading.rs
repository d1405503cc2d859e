use super::*;
use crate::sync::{Instant, thread};
use inkstone_format::frame::{TAG_CLAIM, TAG_VALID};
use proptest::prelude::*;

/// A log with `count` frames of `len` bytes, each durable before the next; the disk and the ends.
fn written(count: u64, len: usize) -> (MemoryVfs, Vec<u64>) {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    let mut ends = Vec::new();
    for i in 0..count {
        let (_, end) = append(&log, &payload(i, len));
        log.wait_durable(end).unwrap();
        ends.push(end.0);
    }
    // What is made ahead is there, too.
    let end = Instant::now() + Duration::from_secs(10);
    while log.stat().spare_segments == 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    (vfs, ends)
}

fn byte_at(lsn: u64) -> (PathBuf, usize) {
    (segment_path(lsn / SEGMENT), 4096 + (lsn % SEGMENT) as usize)
}

fn corruption(result: Result<(Vec<Owned>, Lsn)>) -> (PathBuf, u64, String) {
    match result {
        Err(Error::Corrupt {
            file,
            offset,
            detail,
            page: None,
        }) => (file, offset, detail),
        other => panic!("{:?}", other.map(|(frames, end)| (frames.len(), end))),
    }
}

#[test]
fn a_restart_in_the_middle_of_a_block_goes_on_with_a_new_epoch() {
    let mut vfs = MemoryVfs::new();
    let mut expected = Vec::new();
    let mut start = Lsn(SEGMENT);
    for epoch in 1..=6u64 {
        let (log, ..) = open(LogParams {
            epoch,
            start_lsn: start,
            ..params(&vfs)
        });
        // Epoch 4 writes nothing.
        for i in 0..if epoch == 4 { 0 } else { 30 } {
            let bytes = payload(epoch << 32 | i, 700);
            let (at, end) = append(&log, &bytes);
            if i == 29 {
                log.wait_durable(end).unwrap();
            }
            expected.push((at.0, epoch, bytes));
        }
        let durable = log.durable_lsn();
        drop(log);
        vfs = vfs.crash(|_, _| false);
        let (frames, end) = read(ReadParams {
            must_reach: durable,
            ..read_params(&vfs, epoch)
        })
        .unwrap();
        assert!(frames == expected, "epoch {epoch}");
        start = end;
    }
    // From the middle, as a checkpoint would.
    let (from, epoch, _) = expected[70].clone();
    let (frames, _) = read(ReadParams {
        from: Lsn(from),
        epoch,
        ..read_params(&vfs, 6)
    })
    .unwrap();
    assert!(frames == expected[70..]);
    // With an older epoch than that of the frame: an epoch's first frame is found.
    let (from, _, _) = expected[30].clone();
    let (frames, _) = read(ReadParams {
        from: Lsn(from),
        epoch: 1,
        ..read_params(&vfs, 6)
    })
    .unwrap();
    assert!(frames == expected[30..]);
}

/// A copy is made in steps while the log is written, over several segments, from the middle on; it
/// ends where it is said to end, though the log goes on in the same block.
#[test]
fn a_copied_log_ends_where_it_is_said_to_end() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    let write = |range: std::ops::Range<u64>| -> Vec<(u64, u64)> {
        let ends = range.map(|i| {
            let (start, end) = append(&log, &payload(i, 3000));
            log.wait_durable(end).unwrap();
            (start.0, end.0)
        });
        ends.collect()
    };
    let (from, _) = write(0..10)[5];
    let copies = MemoryVfs::new();
    let mut copy = log.begin_copy(Lsn(from), copies.directory("/db/log"));
    let mut last = (0, 0);
    for step in 0..20 {
        last = write(10 + step * 5..15 + step * 5)[4];
        if step % 3 == 0 {
            copy.catch_up().unwrap();
            assert_eq!(copy.copied(), Lsn(last.1));
        }
    }
    write(110..113);
    log.flush_in_background();
    copy.finish(Lsn(last.1)).unwrap();
    let read_copy = |vfs: &MemoryVfs, must_reach| {
        read(ReadParams {
            from: Lsn(from),
            must_reach: Lsn(must_reach),
            ..read_params(vfs, 1)
        })
    };
    // All of it is durable.
    let copies = copies.crash(|_, _| false);
    let (frames, end) = read_copy(&copies, last.1).unwrap();
    assert_eq!(end, Lsn(last.1));
    assert!(last.1 / SEGMENT > from / SEGMENT + 3, "several segments");
    let (all, _) = read_copy(&vfs, last.1).unwrap();
    assert!(frames[..] == all[..all.len() - 3]);
    assert!(read_copy(&copies, last.1 + 1).is_err());
}

#[test]
fn leftovers_of_a_lost_write_are_a_legal_end() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    for i in 0..10 {
        let (_, end) = append(&log, &payload(i, 3000));
        log.wait_durable(end).unwrap();
    }
    let durable = log.durable_lsn();
    // Two writes without a sync, the second of which survives alone.
    for i in 0..2 {
        let mut end = Lsn(0);
        for j in 0..4 {
            end = append(&log, &payload(100 + i * 4 + j, 3000)).1;
        }
        log.wait_written(end).unwrap();
    }
    for kept in 0..2 {
        let path = segment_path(durable.0 / SEGMENT);
        let after = vfs.crash(|p, i| p != path || i == kept);
        let (_, end) = read(ReadParams {
            must_reach: durable,
            ..read_params(&after, 1)
        })
        .unwrap();
        assert!(end >= durable && end < log.current_lsn(), "{end}");
    }
}

/// A frame that recovery took for torn became whole again, when the next epoch's write was lost
/// but for a later block with the bytes that it had lacked. So the end is made durable at open.
#[test]
fn what_stands_after_the_end_never_comes_back() {
    for len in [3000, 4096 - 16] {
        let (vfs, ends) = written(10, len);
        // The last frame is taken for torn.
        let (log, ..) = open(LogParams {
            epoch: 2,
            start_lsn: Lsn(ends[8]),
            ..params(&vfs)
        });
        append(&log, b"never written");
        let after = vfs.crash(|_, _| false);
        let (frames, end) = read(read_params(&after, 2)).unwrap();
        assert_eq!((frames.len(), end.0), (9, ends[8]));
    }
}

/// Any subset of the unsynced writes, torn by sector: recovery gets everything durable, in
/// several incarnations, and never takes a leftover for the log or for damage.
#[test]
fn random_power_losses() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(40));
    let steps = proptest::collection::vec((0u8..10, 1usize..9000), 5..60);
    let runs = proptest::collection::vec((steps, any::<u64>()), 1..6);
    runner
        .run(&runs, |runs| {
            let mut vfs = MemoryVfs::new();
            let mut start = Lsn(SEGMENT);
            let mut expected: Vec<Owned> = Vec::new();
            for (i, (steps, seed)) in runs.iter().enumerate() {
                let epoch = i as u64 + 1;
                let (log, ..) = open(LogParams {
                    epoch,
                    start_lsn: start,
                    ..params(&vfs)
                });
                for (kind, len) in steps {
                    // The same bytes in each epoch, so that leftovers align.
                    let bytes = vec![3; *len];
                    let (at, end) = log.append(&bytes, claim(kind % 2 == 0), |_, _| {}).unwrap();
                    expected.push((at.0, epoch, bytes));
                    match kind {
                        0..3 => log.wait_durable(end).unwrap(),
                        3..7 => log.wait_written(end).unwrap(),
                        _ => {}
                    }
                }
                let durable = log.durable_lsn();
                let mut x = *seed | 1;
                let after = vfs.crash(|_, _| {
                    x = x
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    x >> 63 == 1
                });
                drop(log);
                vfs = after;
                let (frames, end) = read(ReadParams {
                    must_reach: durable,
                    ..read_params(&vfs, epoch)
                })
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
                prop_assert!(end >= durable);
                prop_assert!(frames.len() <= expected.len());
                expected.truncate(frames.len());
                prop_assert!(frames == expected);
                start = end;
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_torn_tail_is_an_end() {
    let (vfs, ends) = written(10, 3000);
    let last = ends[8];
    // The last frame's middle is gone; no claim covers it.
    let (path, at) = byte_at(last + 1500);
    vfs.edit(&path, |bytes| bytes[at..at + 512].fill(0));
    let (frames, end) = read(read_params(&vfs, 1)).unwrap();
    assert_eq!((frames.len(), end.0), (9, last));
    // Unless the control file knows better.
    let (file, offset, detail) = corruption(read(ReadParams {
        must_reach: Lsn(ends[9]),
        ..read_params(&vfs, 1)
    }));
    let (path, at) = byte_at(last);
    assert_eq!((file, offset), (path, at as u64));
    assert!(
        detail.contains("checksum") && detail.contains("control file"),
        "{detail}"
    );
}

#[test]
fn a_flipped_bit_in_the_middle_is_damage_not_an_end() {
    let (vfs, ends) = written(60, 3000);
    for victim in [0usize, 1, 20, 40, 57] {
        let start = if victim == 0 {
            SEGMENT
        } else {
            ends[victim - 1]
        };
        for within in [0, 1, 3, 10, 1000, 2999] {
            let (path, at) = byte_at(start + within);
            vfs.edit(&path, |bytes| bytes[at] ^= 0x10);
            let (file, offset, detail) = corruption(read(read_params(&vfs, 1)));
            let (expected, expected_at) = byte_at(start);
            assert_eq!((file, offset), (expected, expected_at as u64), "{detail}");
            vfs.edit(&path, |bytes| bytes[at] ^= 0x10);
        }
    }
    assert_eq!(read(read_params(&vfs, 1)).unwrap().0.len(), 60);
}

#[test]
fn damage_is_found_across_epochs() {
    let (vfs, ends) = written(3, 500);
    let (log, ..) = open(LogParams {
        epoch: 5,
        start_lsn: Lsn(ends[2]),
        ..params(&vfs)
    });
    append(&log, b"one frame of epoch 5");
    log.close().unwrap();
    let (path, at) = byte_at(ends[1] + 100);
    vfs.edit(&path, |bytes| bytes[at] ^= 1);
    // The first frame of epoch 5 claims what epoch 1 wrote.
    let (_, _, detail) = corruption(read(read_params(&vfs, 5)));
    assert!(detail.contains("epoch 5"), "{detail}");
}

/// Nothing claims what the last segment had, but the segments behind it tell that it was there.
#[test]
fn a_missing_segment_is_no_end() {
    let (vfs, ends) = written(200, 3000);
    let last = ends.last().unwrap() / SEGMENT;
    let path = segment_path(last);
    let damages: [&dyn Fn(&MemoryVfs); 4] = [
        &|vfs| vfs.remove(&path).unwrap(),
        &|vfs| vfs.edit(&path, |bytes| bytes.clear()),
        &|vfs| vfs.edit(&path, |bytes| bytes.fill(0)),
        &|vfs| {
            let mut older = Vec::new();
            vfs.edit(&segment_path(last - 1), |bytes| older = bytes.clone());
            vfs.edit(&path, |bytes| *bytes = older);
        },
    ];
    for damage in damages {
        let harmed = vfs.crash(|_, _| true);
        damage(&harmed);
        let (file, _, detail) = corruption(read(read_params(&harmed, 1)));
        assert!(file == path && detail.contains("; the later "), "{detail}");
        // One that was not made yet is an end.
        let mut later = last + 1;
        while harmed.remove(&segment_path(later)).is_ok() {
            later += 1;
        }
        assert!(later > last + 1, "no spare segment");
        assert!(read(read_params(&harmed, 1)).is_ok());
    }
}

#[test]
fn missing_cut_and_foreign_segments_are_told_apart() {
    let (vfs, ends) = written(200, 3000);
    let third = segment_path(3);

    let missing = vfs.crash(|_, _| true);
    missing.remove(&third).unwrap();
    let (_, _, detail) = corruption(read(read_params(&missing, 1)));
    assert!(
        detail.contains("0000000000000003.log: the segment file is missing"),
        "{detail}"
    );

    let cut = vfs.crash(|_, _| true);
    cut.edit(&third, |bytes| bytes.truncate(20_000));
    let (_, _, detail) = corruption(read(read_params(&cut, 1)));
    assert!(
        detail.contains("0000000000000003.log is cut off"),
        "{detail}"
    );

    let empty = vfs.crash(|_, _| true);
    empty.edit(&third, |bytes| bytes.clear());
    let (_, _, detail) = corruption(read(read_params(&empty, 1)));
    assert!(detail.contains("cut off"), "{detail}");

    let header = vfs.crash(|_, _| true);
    header.edit(&third, |bytes| bytes[17] ^= 1);
    let (_, _, detail) = corruption(read(read_params(&header, 1)));
    assert!(detail.contains("segment header: checksum"), "{detail}");

    let foreign = vfs.crash(|_, _| true);
    foreign.edit(&third, |bytes| {
        let mut header = inkstone_format::segment::SegmentHeader::decode(&bytes[..4096]).unwrap();
        header.uuid = [9; 16];
        header.encode(&mut bytes[..4096]);
    });
    let (_, _, detail) = corruption(read(read_params(&foreign, 1)));
    assert!(detail.contains("another database"), "{detail}");

    let first = vfs.crash(|_, _| true);
    first.remove(&segment_path(1)).unwrap();
    let (file, _, detail) = corruption(read(read_params(&first, 1)));
    assert_eq!(file, segment_path(1), "{detail}");

    let (_, end) = read(read_params(&vfs, 1)).unwrap();
    assert_eq!(end.0, ends[199]);
    let segments = LogReader::segments(&*vfs.directory("/db/log")).unwrap();
    assert!(segments.len() > 5 && segments.iter().all(|s| s.header.is_ok()));
}

#[test]
fn junk_after_the_end_is_searched_and_passed_over() {
    let (vfs, ends) = written(1, 100);
    let mut x = 1u64;
    for number in 1..20 {
        vfs.crash(|_, _| true);
        let path = segment_path(number);
        if !vfs.exists(&path).unwrap() {
            let mut bytes = vec![0; 4096 + SEGMENT as usize];
            let header = inkstone_format::segment::SegmentHeader {
                number,
                segment_bytes: SEGMENT,
                uuid: UUID,
            };
            header.encode(&mut bytes[..4096]);
            vfs.insert(&path, bytes);
        }
        let from = if number == 1 {
            4096 + (ends[0] - SEGMENT) as usize
        } else {
            4096
        };
        vfs.edit(&path, |bytes| {
            for byte in &mut bytes[from..] {
                x = x
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                *byte = (x >> 56) as u8;
            }
        });
    }
    let (frames, end) = read(read_params(&vfs, 3)).unwrap();
    assert_eq!((frames.len(), end.0), (1, ends[0]));
    // The log can go on there.
    let (log, ..) = open(LogParams {
        epoch: 4,
        start_lsn: end,
        ..params(&vfs)
    });
    for i in 0..100 {
        append(&log, &payload(i, 5000));
    }
    log.close().unwrap();
    assert_eq!(read(read_params(&vfs, 4)).unwrap().0.len(), 101);
}

#[test]
fn opening_a_log_refuses_segments_of_others() {
    let (vfs, ends) = written(1, 100);
    let result = Log::open(
        LogParams {
            uuid: [1; 16],
            start_lsn: Lsn(ends[0]),
            end_block: vec![0; ends[0] as usize % LOG_BLOCK],
            ..params(&vfs)
        },
        Arc::default(),
        Poison::default(),
    );
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
}

/// Behind the end of the log may lie rows of an earlier life that look like long frames with
/// claims, one in each sixteen bytes. For each of them what it seemed to hold was read.
#[test]
fn what_looks_like_frames_is_not_read_again_and_again() {
    let (vfs, ends) = written(10, 3000);
    let end = ends[9];
    let (path, at) = byte_at(end);
    vfs.edit(&path, |bytes| {
        for (n, fake) in bytes[at + 4096..].chunks_exact_mut(16).enumerate() {
            // Each tag is right somewhere.
            fake[0] = TAG_VALID | TAG_CLAIM | (n % 64) as u8;
            // 32 KiB, and any checksum.
            fake[1..4].copy_from_slice(&[0x80, 0x80, 0x02]);
            fake[8..].copy_from_slice(&(end + 1).to_le_bytes());
        }
    });
    vfs.faults.bytes_read.store(0, Ordering::SeqCst);
    let (frames, found) = read(read_params(&vfs, 1)).unwrap();
    assert_eq!((frames.len(), found), (10, Lsn(end)));
    let log: usize = vfs.names().len() * SEGMENT as usize;
    let bytes_read = vfs.faults.bytes_read.load(Ordering::SeqCst);
    assert!(bytes_read <= 4 * log as u64, "{bytes_read} of {log}");
}

/// Where a log was closed, only a frame that follows right there says that it was not. What lies
/// further on is not read: no log can be there.
#[test]
fn a_closed_log_is_searched_no_further() {
    let (vfs, ends) = written(40, 3000);
    let closed_at = ends[19];
    let read_closed = |vfs: &MemoryVfs, at: u64| {
        read(ReadParams {
            must_reach: Lsn(at),
            closed_at: Some(Lsn(at)),
            ..read_params(vfs, 1)
        })
    };
    // A commit beside the close: the log goes on there, and ends where that is proven.
    let (frames, end) = read_closed(&vfs, closed_at).unwrap();
    assert_eq!((frames.len(), end.0), (40, ends[39]));
    // Damage behind it is found, as ever.
    let (path, at) = byte_at(ends[24] + 100);
    vfs.edit(&path, |bytes| bytes[at] ^= 1);
    corruption(read_closed(&vfs, closed_at));
    // Before it, too.
    let (path, at) = byte_at(ends[9] + 100);
    vfs.edit(&path, |bytes| bytes[at] ^= 1);
    corruption(read_closed(&vfs, closed_at));
    // Frames behind a gap are none of this log, where it was closed before the gap.
    let (vfs, ends) = written(40, 3000);
    let (path, at) = byte_at(ends[19] + 100);
    vfs.edit(&path, |bytes| bytes[at] ^= 1);
    corruption(read(read_params(&vfs, 1)));
    let (frames, end) = read_closed(&vfs, ends[19]).unwrap();
    assert_eq!((frames.len(), end.0), (20, ends[19]));
    // Nor does it end before where it was closed.
    let (path, at) = byte_at(ends[18] + 100);
    vfs.edit(&path, |bytes| bytes[at] ^= 1);
    corruption(read_closed(&vfs, ends[19]));
}
