//! Repositories that want to run something, or to pass something off.

use super::*;

/// Configures everything in a repository that git would run, each leaving a mark, and attributes that name it.
fn arm(git_dir: &Path, marks: &Path) {
    let run = |name: &str| format!("touch {}/{name}; cat", marks.display());
    for hook in
        ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"]
    {
        let file = git_dir.join("hooks").join(hook);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("#!/bin/sh\n{}\n", run(hook))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let config = format!(
        "\n[core]\n\tfsmonitor = \"{}\"\n\thooksPath = hooks\n\tpager = \"{}\"\n\tsshCommand = \"{}\"\n\
         [filter \"evil\"]\n\tclean = \"{}\"\n\tsmudge = \"{}\"\n\tprocess = \"{}\"\n\trequired = true\n\
         [diff]\n\texternal = \"{}\"\n\
         [diff \"evil\"]\n\ttextconv = \"{}\"\n\tcommand = \"{}\"\n\
         [credential]\n\thelper = \"!{}\"\n\
         [alias]\n\tls-files = \"!{}\"\n\
         [remote \"origin\"]\n\turl = ext::{}\n\tpromisor = true\n\tpartialclonefilter = blob:none\n\
         [extensions]\n\tpartialClone = origin\n",
        run("fsmonitor"),
        run("pager"),
        run("ssh"),
        run("clean"),
        run("smudge"),
        run("process"),
        run("external"),
        run("textconv"),
        run("command"),
        run("credential"),
        run("alias"),
        run("remote")
    );
    let mut all = fs::read_to_string(git_dir.join("config")).unwrap_or_default();
    all.push_str(&config);
    fs::write(git_dir.join("config"), all).unwrap();
    fs::create_dir_all(git_dir.join("info")).unwrap();
    fs::write(git_dir.join("info/attributes"), "* filter=evil diff=evil\n").unwrap();
}

#[tokio::test]
async fn nothing_that_a_repository_configures_is_run() {
    let place = Place::new();
    let marks = place.folder.path().join("marks");
    fs::create_dir(&marks).unwrap();
    fs::create_dir(place.path("nested")).unwrap();
    git_in(&place.path("nested"), &["init", "-q", "."]);
    place.write("nested/x", "x\n");
    git_in(&place.path("nested"), &["add", "-A"]);
    git_in(&place.path("nested"), &["commit", "-qm", "x"]);
    place.git(&["submodule", "add", "-q", "./nested", "module"]);
    place.commit();
    arm(&place.path(".git"), &marks);
    arm(&place.path("nested/.git"), &marks);
    arm(&place.path(".git/modules/module"), &marks);
    fs::create_dir_all(place.path("bare/objects")).unwrap();
    fs::create_dir_all(place.path("bare/refs")).unwrap();
    place.write("bare/HEAD", "ref: refs/heads/main\n");
    arm(&place.path("bare"), &marks);
    place.write(".gitattributes", "* filter=evil diff=evil\n[attr]binary filter=evil\n");
    // A promised object that is not there would be fetched.
    let before = place.take().await;
    place.write("a.txt", "changed\n");
    place.write("nested/x", "changed\n");
    place.write("module/x", "changed\n");
    place.write("new", "new\n");
    let after = place.try_take(&place.path("bare")).await.unwrap().unwrap();
    let changes = place.changes(&before.tree, &after.tree).await;
    assert_eq!(changes.len(), 2, "{changes:?}");
    let (session, root) = (place.session(), place.root());
    let kept = Kept { session: &session, root: &root };
    place.snapshots.contents(kept, &changes, 1000, 1000).await.unwrap();
    place.restore(&before, &after).await;
    assert_eq!(fs::read_dir(&marks).unwrap().count(), 0, "{:?}", files(&marks).keys());
    // The marks would be seen: the person's own git runs it.
    let _ = Command::new("git").arg("status").current_dir(place.root()).output();
    assert_ne!(fs::read_dir(&marks).unwrap().count(), 0, "the trap is not armed");
}

#[tokio::test]
async fn bytes_are_kept_as_they_lie_on_the_disk_whatever_git_would_make_of_them() {
    let place = Place::empty();
    place.git(&["init", "-q", "."]);
    place.git(&["config", "core.autocrlf", "true"]);
    place.git(&["config", "filter.rot.clean", "tr a-z b-za"]);
    place.git(&["config", "filter.rot.smudge", "tr b-za a-z"]);
    place.write(
        ".gitattributes",
        "*.txt text\n*.rot filter=rot\n*.id ident\n*.u16 text working-tree-encoding=UTF-16LE\n",
    );
    let contents: [(&str, &[u8]); 4] = [
        ("crlf.txt", b"a\r\nb\r\n"),
        // As many bytes in the repository as on the disk.
        ("same.rot", b"secret\n"),
        ("x.id", b"$Id: 0123456789012345678901234567890123456789 $\n"),
        ("wide.u16", b"a\0\r\0\n\0"),
    ];
    for (name, content) in contents {
        place.write(name, content);
    }
    place.commit();
    let before = place.take().await;
    for (name, _) in contents {
        fs::remove_file(place.path(name)).unwrap();
    }
    let after = place.take().await;
    let restored = place.restore(&before, &after).await;
    assert_eq!((restored.done.len(), restored.stays), (4, vec![]));
    for (name, content) in contents {
        assert_eq!(fs::read(place.path(name)).unwrap(), content, "{name}");
    }
}

#[tokio::test]
async fn pipes_in_the_place_of_gits_own_files_do_not_hang_it() {
    let place = Place::new();
    for name in ["index", "info/exclude", "config"] {
        let path = place.path(".git").join(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    place.take().await;
}
