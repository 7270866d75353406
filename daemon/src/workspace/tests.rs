//! Locating, reading and replacing, against a real file system and an adversary.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::ids::digest_of;

struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        Self { _dir: dir, root }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn locate(&self, typed: &str) -> Result<Located, PathError> {
        locate(Base { cwd: &self.root, home: Some(&self.root.join("home")) }, typed)
    }

    /// Names of temporary files left anywhere below.
    fn leftovers(&self) -> Vec<PathBuf> {
        fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if is_temp_name(entry.file_name().as_bytes()) {
                    found.push(entry.path());
                }
                if entry.file_type().unwrap().is_dir() {
                    visit(&entry.path(), found);
                }
            }
        }
        let mut found = Vec::new();
        visit(&self.root, &mut found);
        found
    }
}

/// Replaces what stands there now, as a writer does that has just read it.
fn overwrite(located: &Located, bytes: &[u8]) -> Result<Replaced, PathError> {
    let expected = match located.read(MAX_FILE) {
        Ok(content) => Expected::Content(content.digest),
        Err(_) => Expected::Absent,
    };
    located.replace(bytes, expected)
}

#[test]
fn spellings_of_one_file_have_one_real_name() {
    let place = Place::new();
    let real = place.put("a/b/f", b"x");
    place.put("home/h", b"x");
    symlink("a", place.root.join("link")).unwrap();
    let absolute = real.to_str().unwrap();
    for typed in ["a/b/f", "./a/b/f", "a/./b//f", "a/b/../b/f", "link/b/f", "link/b/../../a/b/f", absolute] {
        assert_eq!(place.locate(typed).unwrap().real, real, "{typed}");
    }
    assert_eq!(place.locate("~/h").unwrap().real, place.root.join("home/h"));
    assert_eq!(place.locate("~//h").unwrap().real, place.root.join("home/h"));
    assert_eq!(place.locate("~").unwrap().real, place.root.join("home"));
    assert_eq!(
        place.locate("~x").unwrap().real,
        place.root.join("~x"),
        "another user's home is not looked up"
    );
    for folder in [".", "./", "a/..", "a/../", "link/.."] {
        let located = place.locate(folder).unwrap();
        assert_eq!(
            (located.real.as_path(), located.found()),
            (place.root.as_path(), Some(Kind::Folder)),
            "{folder}"
        );
    }
    assert_eq!(place.locate("/").unwrap().real, Path::new("/"));
    assert_eq!(place.locate("/..").unwrap().real, Path::new("/"));
}

#[test]
fn hostile_and_impossible_paths_are_errors() {
    let place = Place::new();
    place.put("f", b"x");
    symlink("nowhere/at/all", place.root.join("dangling")).unwrap();
    let long_name = "n".repeat(256);
    let long_path = "a/".repeat(2_100);
    type Check = fn(&PathError) -> bool;
    let cases: [(&str, Check); 9] = [
        ("", |e| matches!(e, PathError::Empty)),
        ("a\0b", |e| matches!(e, PathError::Nul)),
        (&long_name, |e| matches!(e, PathError::TooLong)),
        (&long_path, |e| matches!(e, PathError::TooLong)),
        ("f/", |e| matches!(e, PathError::NotAFolder { .. })),
        ("f/below", |e| matches!(e, PathError::NotAFolder { .. })),
        ("missing/../f", |e| matches!(e, PathError::Missing { .. })),
        ("missing/", |e| matches!(e, PathError::Missing { .. })),
        ("dangling/below", |e| matches!(e, PathError::Missing { .. })),
    ];
    for (typed, expected) in cases {
        let error = place.locate(typed).unwrap_err();
        assert!(expected(&error), "{typed:?}: {error:?}");
    }
}

#[test]
fn kernel_folders_are_refused_in_every_spelling() {
    let place = Place::new();
    let pid = std::process::id();
    symlink("/proc/self/environ", place.root.join("environ")).unwrap();
    symlink("/proc", place.root.join("proc")).unwrap();
    symlink("proc", place.root.join("chain")).unwrap();
    symlink("/dev/zero", place.root.join("zero")).unwrap();
    std::fs::create_dir(place.root.join("sub")).unwrap();
    let up = "../".repeat(place.root.components().count() + 2);
    let spellings = [
        "/proc/self/environ".to_owned(),
        "/proc//self/./environ".into(),
        "//proc/self/environ".into(),
        format!("/proc/{pid}/environ"),
        "/proc/thread-self/environ".into(),
        "/proc/self/fd/0".into(),
        "/proc/self/fd/".into(),
        "/proc/self/cwd/Cargo.toml".into(),
        "/proc/self/root/etc/passwd".into(),
        "/proc/self/root/proc/self/environ".into(),
        "/proc/self/task/../environ".into(),
        "/proc/self/mem".into(),
        "/proc/sys/kernel/hostname".into(),
        "/proc".into(),
        "/proc/".into(),
        "/proc/new-file".into(),
        "/dev/fd/0".into(),
        "/dev/stdin".into(),
        "/dev/zero".into(),
        "/dev/null".into(),
        "/dev/shm/x".into(),
        "/dev/pts/0".into(),
        "/sys/power/state".into(),
        "/sys/kernel".into(),
        "/etc/../proc/self/environ".into(),
        format!("{up}proc/self/environ"),
        "sub/../environ".into(),
        "environ".into(),
        "proc/self/environ".into(),
        "chain/self/environ".into(),
        "zero".into(),
    ];
    for typed in spellings {
        let error = place.locate(&typed).map(|located| located.real).unwrap_err();
        // A link of the kernel's on the way is refused by the kernel itself.
        assert!(matches!(error, PathError::Kernel { .. } | PathError::Links { .. }), "{typed}: {error:?}");
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let place = Place::new();
    let fifo = place.root.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.root.join("socket")).unwrap();
    std::fs::create_dir(place.root.join("folder")).unwrap();
    for (name, kind) in [("fifo", Kind::Fifo), ("socket", Kind::Socket), ("folder", Kind::Folder)] {
        let located = place.locate(name).unwrap();
        let unread = Expected::Content(digest_of(b""));
        for error in [located.read(10).unwrap_err(), located.replace(b"x", unread).unwrap_err()] {
            assert!(matches!(error, PathError::NotRegular { kind: k, .. } if k == kind), "{name}: {error:?}");
        }
    }
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn files_over_the_limit_are_refused_before_they_are_read() {
    let place = Place::new();
    let path = place.put("f", b"12345");
    assert_eq!(place.locate("f").unwrap().read(5).unwrap().bytes, b"12345");
    assert!(matches!(place.locate("f").unwrap().read(4), Err(PathError::TooLarge { size: 5, limit: 4, .. })));
    // Sparse: 50 GB that take no room.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(50_000_000_000).unwrap();
    assert!(matches!(place.locate("f").unwrap().read(MAX_FILE), Err(PathError::TooLarge { .. })));
}

#[test]
fn a_write_needs_the_expected_content() {
    let place = Place::new();
    let path = place.put("f", b"one");
    let located = place.locate("f").unwrap();
    assert!(matches!(located.replace(b"x", Expected::Absent), Err(PathError::Exists { .. })));
    let wrong = Expected::Content(digest_of(b"two"));
    assert!(matches!(located.replace(b"x", wrong), Err(PathError::Changed { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"one");
    let done = located.replace(b"two", Expected::Content(digest_of(b"one"))).unwrap();
    assert_eq!((done.before, done.after), (Some(digest_of(b"one")), digest_of(b"two")));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(located.replace(b"x", Expected::Content(done.after)), Err(PathError::Changed { .. })));
    assert_eq!(overwrite(&located, b"three").unwrap().before, None);
    assert_eq!(std::fs::read(&path).unwrap(), b"three");
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn mode_is_kept_and_a_new_file_is_as_open_as_its_folder() {
    let place = Place::new();
    let path = place.put("script", b"#!/bin/sh\n");
    for mode in [0o755, 0o600, 0o444, 0o4755] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        overwrite(&place.locate("script").unwrap(), format!("{mode}").as_bytes()).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, mode);
    }
    for (folder, file) in [(0o755, 0o644), (0o700, 0o600), (0o775, 0o664), (0o777, 0o664)] {
        let name = format!("d{folder:o}");
        std::fs::create_dir(place.root.join(&name)).unwrap();
        std::fs::set_permissions(place.root.join(&name), PermissionsExt::from_mode(folder)).unwrap();
        place.locate(&format!("{name}/new")).unwrap().replace(b"", Expected::Absent).unwrap();
        assert_eq!(place.root.join(&name).join("new").metadata().unwrap().mode() & 0o7777, file, "{name}");
    }
}

#[test]
fn missing_folders_are_made_below_the_judged_one() {
    let place = Place::new();
    std::fs::create_dir(place.root.join("real")).unwrap();
    symlink("real", place.root.join("link")).unwrap();
    let located = place.locate("link/a/b/f").unwrap();
    assert_eq!(located.real, place.root.join("real/a/b/f"));
    assert_eq!(located.found(), None);
    assert!(matches!(located.read(1), Err(PathError::Missing { .. })));
    located.replace(b"x", Expected::Absent).unwrap();
    assert_eq!(std::fs::read(place.root.join("real/a/b/f")).unwrap(), b"x");
}

#[test]
fn a_link_put_where_a_folder_was_missing_is_not_followed() {
    let place = Place::new();
    std::fs::create_dir(place.root.join("outside")).unwrap();
    let located = place.locate("a/b/f").unwrap();
    symlink("outside", place.root.join("a")).unwrap();
    located.replace(b"x", Expected::Absent).unwrap_err();
    assert_eq!(std::fs::read_dir(place.root.join("outside")).unwrap().count(), 0);
}

#[test]
fn ed_08_writing_through_a_link_changes_its_target_and_keeps_the_link() {
    let place = Place::new();
    place.put("real/file", b"old");
    std::fs::create_dir(place.root.join("links")).unwrap();
    symlink("../real/file", place.root.join("links/relative")).unwrap();
    symlink(place.root.join("real/file"), place.root.join("absolute")).unwrap();
    symlink("links/relative", place.root.join("chained")).unwrap();
    for (n, name) in ["links/relative", "absolute", "chained"].iter().enumerate() {
        let located = place.locate(name).unwrap();
        assert_eq!(located.real, place.root.join("real/file"), "{name}");
        let text = format!("new {n}");
        overwrite(&located, text.as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(place.root.join("real/file")).unwrap(), text);
        assert!(place.root.join(name).symlink_metadata().unwrap().is_symlink(), "{name}");
    }
    // A link to nothing leads to where the new file is made.
    symlink("real/new", place.root.join("dangling")).unwrap();
    place.locate("dangling").unwrap().replace(b"made", Expected::Absent).unwrap();
    assert_eq!(std::fs::read(place.root.join("real/new")).unwrap(), b"made");
}

#[test]
fn ed_08_loops_of_links_are_errors() {
    let place = Place::new();
    symlink("b", place.root.join("a")).unwrap();
    symlink("a", place.root.join("b")).unwrap();
    symlink("self", place.root.join("self")).unwrap();
    symlink("d/x", place.root.join("d")).unwrap();
    for typed in ["a", "self", "a/below", "d"] {
        assert!(matches!(place.locate(typed), Err(PathError::Links { .. })), "{typed}");
    }
}

#[test]
fn ed_10_another_hard_link_keeps_the_old_content_and_it_is_said() {
    let place = Place::new();
    let outside = place.put("outside/bashrc", b"old");
    std::fs::hard_link(&outside, place.root.join("planted")).unwrap();
    let done = overwrite(&place.locate("planted").unwrap(), b"evil").unwrap();
    assert!(done.left_other_links);
    assert_eq!(std::fs::read(&outside).unwrap(), b"old");
    assert_eq!(std::fs::read(place.root.join("planted")).unwrap(), b"evil");
    let again = overwrite(&place.locate("planted").unwrap(), b"more").unwrap();
    assert!(!again.left_other_links);
}

#[test]
fn a_folder_that_was_moved_after_it_was_judged_is_not_written_to() {
    let place = Place::new();
    let moved = place.put("d/f", b"old");
    let located = place.locate("d/f").unwrap();
    std::fs::rename(moved.parent().unwrap(), place.root.join("elsewhere")).unwrap();
    assert!(matches!(overwrite(&located, b"new"), Err(PathError::Changed { .. })));
    assert_eq!(std::fs::read(place.root.join("elsewhere/f")).unwrap(), b"old");
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn a_removed_folder_has_no_name() {
    let place = Place::new();
    place.put("d/f", b"old");
    let located = place.locate("d/f").unwrap();
    std::fs::remove_dir_all(place.root.join("d")).unwrap();
    overwrite(&located, b"new").unwrap_err();
    assert!(!place.root.join("d").exists());
}

/// An adversary swaps the folder, and the file, for links to the outside while files are located and written. What was
/// judged inside must never be written outside.
#[test]
fn swapped_links_never_lead_a_write_outside() {
    let place = Place::new();
    let outside = place.put("outside/target", b"untouched");
    place.put("ws/d/target", b"inside");
    let ws = place.root.join("ws");
    symlink("../outside", ws.join("folder-link")).unwrap();
    symlink("../../outside/target", ws.join("file-link")).unwrap();
    let (done, round) = (AtomicBool::new(false), AtomicUsize::new(0));
    let swaps = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            // Every now and then the writer gets a whole round to itself: else a fast adversary keeps every write away, and
            // nothing is shown.
            let rest = || {
                let seen = round.load(Ordering::Relaxed);
                while round.load(Ordering::Relaxed) < seen + 2 && !done.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            };
            let exchange = |a: &str, b: &str| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                // The names come and go under the writer's hands; a failed swap is one attack less.
                rustix::fs::renameat_with(rustix::fs::CWD, ws.join(a), rustix::fs::CWD, ws.join(b), flags)
                    .is_ok()
            };
            let (mut swaps, mut cycles) = (0, 0_u32);
            while !done.load(Ordering::Relaxed) {
                swaps += usize::from(exchange("d", "folder-link"));
                swaps += usize::from(exchange("d", "folder-link"));
                swaps += usize::from(exchange("d/target", "file-link"));
                swaps += usize::from(exchange("d/target", "file-link"));
                cycles += 1;
                if cycles % 16 == 0 {
                    rest();
                }
            }
            swaps
        });
        let base = Base { cwd: &ws, home: None };
        let mut written = 0;
        for number in 0..3_000 {
            round.store(number, Ordering::Relaxed);
            let Ok(located) = locate(base, "d/target") else { continue };
            // The gate: only what lies in the workspace may be written.
            if !located.real.starts_with(&ws) {
                continue;
            }
            written += usize::from(overwrite(&located, format!("{number}").as_bytes()).is_ok());
            assert_eq!(std::fs::read(&outside).unwrap(), b"untouched", "after {number} rounds");
        }
        done.store(true, Ordering::Relaxed);
        assert!(written > 0, "the adversary kept every write away, so nothing was shown");
        swapper.join().unwrap()
    });
    assert!(swaps > 100, "only {swaps} swaps");
    assert_eq!(std::fs::read(&outside).unwrap(), b"untouched");
    assert_eq!(std::fs::read_dir(place.root.join("outside")).unwrap().count(), 1, "nothing was made outside");
}

/// The same against reading: what was judged inside never shows the outside.
#[test]
fn swapped_links_never_lead_a_read_outside() {
    let place = Place::new();
    place.put("outside/target", b"secret");
    place.put("ws/d/target", b"inside");
    let ws = place.root.join("ws");
    symlink("../outside", ws.join("link")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    ws.join("d"),
                    rustix::fs::CWD,
                    ws.join("link"),
                    flags,
                );
            }
        });
        let folder = locate(Base { cwd: &place.root, home: None }, "ws").unwrap().open_folder().unwrap();
        let (mut seen, mut judged) = (0, 0);
        for _ in 0..3_000 {
            if let Ok(located) = locate(Base { cwd: &ws, home: None }, "d/target")
                && located.real.starts_with(&ws)
                && let Ok(content) = located.read(100)
            {
                judged += 1;
                assert_eq!(content.bytes, b"inside");
            }
            if let Ok(content) = folder.read(Path::new("d/target"), 100) {
                seen += 1;
                assert_eq!(content.bytes, b"inside");
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(judged > 0 && seen > 0, "nothing was read, so nothing was shown");
    });
}

#[test]
fn ed_19_a_full_disk_leaves_the_old_content_and_no_temporary_file() {
    let place = Place::new();
    let small = place.root.join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(&small)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("SKIPPED ed_19: no tmpfs can be mounted here; run as root to prove it");
        return;
    }
    let old = b"old content".repeat(100);
    std::fs::write(small.join("f"), &old).unwrap();
    let result = overwrite(&place.locate("small/f").unwrap(), &vec![b'x'; 1 << 20]);
    let after = std::fs::read(small.join("f")).unwrap();
    let leftovers = place.leftovers();
    std::process::Command::new("umount").arg("-l").arg(&small).status().unwrap();
    let error = result.unwrap_err().explain();
    assert!(error.contains("old content is untouched") && error.contains("No space left"), "{error}");
    assert_eq!(after, old);
    assert_eq!(leftovers, Vec::<PathBuf>::new());
}

#[test]
fn ed_19_a_temporary_file_left_by_a_crash_is_never_listed() {
    let place = Place::new();
    place.put("f", b"x");
    place.put(".agentd-0123.tmp", b"half");
    place.put(".agentd-notes", b"a person's own");
    let folder = place.locate(".").unwrap().open_folder().unwrap();
    let names: Vec<_> =
        folder.entries(Path::new("")).unwrap().0.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [".agentd-notes", "f"]);
}

#[test]
fn a_new_private_file_is_made_once() {
    let place = Place::new();
    let located = place.locate("p.md").unwrap();
    located.create_exclusive(b"").unwrap();
    assert_eq!(place.root.join("p.md").metadata().unwrap().mode() & 0o7777, 0o600);
    assert!(matches!(located.create_exclusive(b""), Err(PathError::Exists { .. })));
    symlink("nowhere", place.root.join("l.md")).unwrap();
    let link = locate_entry(&place.root.join("l.md")).unwrap();
    assert!(matches!(link.create_exclusive(b""), Err(PathError::Exists { .. })));
    assert!(!place.root.join("nowhere").exists());
}
