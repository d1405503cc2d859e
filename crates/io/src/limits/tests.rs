use super::*;
use std::fs;

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn version_2_counts_parents() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let groups = "0::/system.slice/shop.service/worker\n";
    assert_eq!(memory_of(groups, root), None);
    put(root, "system.slice/shop.service/worker/memory.max", "max\n");
    assert_eq!(memory_of(groups, root), None);
    put(root, "system.slice/shop.service/memory.max", "268435456\n");
    put(root, "system.slice/memory.max", "1073741824\n");
    assert_eq!(memory_of(groups, root), Some(256 << 20));
    put(root, "system.slice/memory.max", "1048576\n");
    assert_eq!(memory_of(groups, root), Some(1 << 20));
}

/// A container without a view of its own sees its group as the mount.
#[test]
fn version_2_inside_a_container() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "memory.max", "536870912\n");
    for groups in ["0::/\n", "0::/docker/0123abcd\n", "0::/../../other\n"] {
        assert_eq!(memory_of(groups, place.path()), Some(512 << 20), "{groups}");
    }
}

#[test]
fn version_1_has_a_hierarchy_for_memory() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let groups = "4:cpu,cpuacct:/docker/1\n3:memory:/docker/1\n1:name=systemd:/docker/1\n0::/\n";
    put(
        root,
        "memory/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    put(root, "cpu/docker/1/memory.limit_in_bytes", "1\n");
    assert_eq!(memory_of(groups, root), None);
    put(root, "memory/docker/1/memory.limit_in_bytes", "134217728\n");
    assert_eq!(memory_of(groups, root), Some(128 << 20));
    put(root, "memory/docker/1/memory.limit_in_bytes", "nonsense\n");
    assert_eq!(memory_of(groups, root), None);
    assert_eq!(memory_of("", root), None);
}
