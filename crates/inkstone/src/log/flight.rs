//! A flight on the disk: where its bytes lie in the ring, which segments they go to, and the syncs
//! of those.

use super::LogShared;
use super::pipeline::{BLOCK, Flight, SCRATCH_BYTES, Slot, block_ceil, block_floor};
use crate::counters::{Counter, Timed};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::segment::LOG_BLOCK;
use inkstone_io::{Batch, File, Op};
use std::sync::Arc;

/// Bytes for one segment file, in order.
struct Piece<'a> {
    number: u64,
    file: Arc<dyn File>,
    offset: u64,
    buffers: Vec<&'a [u8]>,
}

impl LogShared {
    pub(super) fn write_flight(&self, flight: &Flight, slot: &mut Slot) -> Result<()> {
        let (from, to) = (block_floor(flight.start), block_ceil(flight.end));
        let whole = block_floor(flight.end);
        let small = to - from <= SCRATCH_BYTES as u64;
        let staged_from = if small { from } else { whole };
        paranoid!(
            staged_from <= flight.end && to - staged_from <= SCRATCH_BYTES as u64,
            "bytes from LSN {staged_from} to {to} do not fit the scratch memory"
        );
        let Slot { scratch, batch } = slot;
        self.stage(scratch, staged_from, flight.end);
        let [first, second] = if small {
            [&[][..], &[][..]]
        } else {
            // SAFETY: whole blocks below `ready`; they are released when this flight lands.
            unsafe { self.ring.parts(from, whole) }
        };
        let staged = &scratch[..(to - staged_from) as usize];
        let pieces = self.pieces(from, [first, second, staged], flight.cached)?;
        self.counters.add(Counter::LogBytesWritten, to - from);
        match batch {
            Some(batch) if !flight.cached => self.run_batch(&mut **batch, &pieces, flight),
            // The page cache takes it at once.
            _ => self.write_pieces(&pieces),
        }
    }

    /// Copies `[from, end)` out of the ring and zeroes the rest of its last block: others may be
    /// copying there.
    fn stage(&self, scratch: &mut [u8], from: u64, end: u64) {
        let len = (end - from) as usize;
        paranoid!(
            from.is_multiple_of(BLOCK) && len <= scratch.len(),
            "{len} bytes from LSN {from} are staged in {}",
            scratch.len()
        );
        // SAFETY: below `ready`; released not before this flight lands.
        let [first, second] = unsafe { self.ring.parts(from, end) };
        scratch[..first.len()].copy_from_slice(first);
        scratch[first.len()..len].copy_from_slice(second);
        scratch[len..block_ceil(len as u64) as usize].fill(0);
    }

    /// Splits the bytes from LSN `from` on where segments end.
    fn pieces<'a>(
        &self,
        from: u64,
        buffers: [&'a [u8]; 3],
        cached: bool,
    ) -> Result<Vec<Piece<'a>>> {
        let durable = self.durable.load(Ordering::Acquire);
        let mut pieces: Vec<Piece<'a>> = Vec::with_capacity(2);
        let mut at = from;
        let to = from
            + buffers
                .iter()
                .map(|buffer| buffer.len() as u64)
                .sum::<u64>();
        for mut buffer in buffers {
            paranoid!(
                at.is_multiple_of(BLOCK) && buffer.len().is_multiple_of(LOG_BLOCK),
                "{} bytes from LSN {at} are written, a part of a block",
                buffer.len()
            );
            while !buffer.is_empty() {
                let number = self.segments.number(at);
                let room = self.segments.segment_bytes() - at % self.segments.segment_bytes();
                let (part, rest) = buffer.split_at(buffer.len().min(room as usize));
                let segment_end = at + room;
                match pieces.last_mut() {
                    Some(piece) if piece.number == number => piece.buffers.push(part),
                    _ => pieces.push(Piece {
                        number,
                        file: self
                            .segments
                            .file(number, to.min(segment_end), durable, cached)?,
                        offset: self.segments.offset(at),
                        buffers: vec![part],
                    }),
                }
                at += part.len() as u64;
                buffer = rest;
            }
        }
        Ok(pieces)
    }

    fn write_pieces(&self, pieces: &[Piece<'_>]) -> Result<()> {
        for piece in pieces {
            let mut offset = piece.offset;
            for buffer in &piece.buffers {
                self.counters.add(Counter::LogWriteCalls, 1);
                let timing = self.counters.time(Timed::LogWrite);
                let written = piece.file.write_at(buffer, offset);
                drop(timing);
                written.map_err(|e| Error::io("write", piece.file.path(), e))?;
                offset += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn run_batch(
        &self,
        batch: &mut dyn Batch,
        pieces: &[Piece<'_>],
        flight: &Flight,
    ) -> Result<()> {
        let syncs = if flight.syncs {
            self.segments.live(flight.durable_before, flight.end)
        } else {
            Vec::new()
        };
        let writes = pieces.iter().map(|piece| Op::Write {
            file: &*piece.file,
            buffers: piece.buffers.clone(),
            offset: piece.offset,
            atomic: false,
        });
        let mut operations: Vec<Op<'_>> = writes
            .chain(syncs.iter().map(|file| Op::Sync { file: &**file }))
            .collect();
        self.counters
            .add(Counter::LogWriteCalls, pieces.len() as u64);
        self.counters.add(Counter::LogSyncs, syncs.len() as u64);
        let under_way: Vec<_> = syncs.iter().map(|_| self.poison.begin_sync()).collect();
        let timing = self.counters.time(Timed::LogWrite);
        let results = batch.run(&mut operations);
        drop((timing, operations));
        crate::invariant!(
            results.len() == pieces.len() + syncs.len(),
            "a batch lost results"
        );
        let mut results = results.into_iter();
        let mut outcome = Ok(());
        for (piece, result) in pieces.iter().zip(&mut results) {
            let written = result.map_err(|e| Error::io("write", piece.file.path(), e));
            outcome = outcome.and(written);
        }
        // All of them, whatever came before: each failed sync poisons before its end is known.
        for ((file, sync), result) in syncs.iter().zip(under_way).zip(results) {
            outcome = outcome.and(sync.end(file.path(), result));
        }
        outcome
    }

    pub(super) fn sync_segments(&self, from: u64, to: u64) -> Result<()> {
        paranoid!(from <= to, "a sync from LSN {from} to {to}");
        for file in self.segments.live(from, to) {
            self.counters.add(Counter::LogSyncs, 1);
            if mutants::on(Mutant::LogUnsynced) {
                continue;
            }
            let under_way = self.poison.begin_sync();
            let timing = self.counters.time(Timed::LogSync);
            let result = match file.sync() {
                Err(_) if mutants::on(Mutant::FailedSyncIgnored) => Ok(()),
                result => result,
            };
            drop(timing);
            under_way.end(file.path(), result)?;
        }
        self.poison.check()
    }
}
