//! What the containers of some users forbid: filters of system calls (seccomp) answer for the
//! kernel. A filter holds for the thread that sets it, and for good.

use inkstone_io::posix::PosixVfs;
use inkstone_io::scratch::ScratchVfs;
use inkstone_io::{Create, OpenOptions, Vfs};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::io::ErrorKind;
use std::path::Path;

const OPTIONS: OpenOptions = OpenOptions {
    create: Create::IfMissing,
    direct: false,
    dsync: false,
    read_only: false,
};

/// Runs `work` in a thread in which a system call ends with `errno` where the rules apply.
fn refusing(call: i64, rules: Vec<SeccompRule>, errno: i32, work: impl FnOnce() + Send) {
    let target = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(
        [(call, rules)].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        target,
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    std::thread::scope(|scope| {
        let refused = scope.spawn(move || {
            seccompiler::apply_filter(&program).unwrap();
            work();
        });
        refused.join().unwrap();
    });
}

#[test]
fn space_is_made_of_zeroes_where_fallocate_is_forbidden() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        refusing(libc::SYS_fallocate, Vec::new(), errno, || {
            let file = PosixVfs::new().open_file(&path, OPTIONS).unwrap();
            file.write_at(&[7; 5000], 0).unwrap();
            file.allocate(0, 3 << 20).unwrap();
        });
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 3 << 20);
        let (kept, added) = bytes.split_at(5000);
        assert!(kept == [7; 5000] && added.iter().all(|&byte| byte == 0));
        let blocks = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
        assert!(blocks * 512 >= 3 << 20, "{blocks} blocks: there are holes");
    }
}

#[test]
fn no_call_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let without_sync = || {
        let vfs = ScratchVfs::new(folder.path(), "log").unwrap();
        let directory = vfs.open_directory(Path::new("/of"), Create::New).unwrap();
        directory.subdirectory("log", Create::New).unwrap();
        for name in ["file", "log/segment"] {
            let file = directory.open(name, OPTIONS).unwrap();
            file.allocate(0, 3 << 20).unwrap();
            file.write_at(&[7; 5000], 0).unwrap();
            file.sync_and_forget().unwrap();
        }
        directory.sync().unwrap();
        directory.sync_file_system().unwrap();
    };
    let refuse = |call, work: &(dyn Fn() + Sync)| refusing(call, Vec::new(), libc::EIO, work);
    refuse(libc::SYS_fdatasync, &|| {
        refuse(libc::SYS_fsync, &|| {
            refuse(libc::SYS_syncfs, &without_sync);
        });
    });
}

#[test]
fn what_to_do_without_unbuffered_files_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let direct = SeccompCondition::new(
        2,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(libc::O_DIRECT as u64),
        libc::O_DIRECT as u64,
    );
    let rules = vec![SeccompRule::new(vec![direct.unwrap()]).unwrap()];
    refusing(libc::SYS_openat, rules, libc::EINVAL, || {
        let open = |path: &Path, direct| {
            let opened = PosixVfs::new().open_file(path, OpenOptions { direct, ..OPTIONS });
            opened.map(drop)
        };
        let error = open(&path, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        for option in [
            "flush_method=fsync",
            "log_file_buffering=on",
            "doublewrite=",
        ] {
            assert!(text.contains(option), "{text}");
        }
        open(&path, false).unwrap();
    });
}
