//! Spellings that must be found, and everyday commands that must not.

use super::*;

fn critical(command: &str) -> bool {
    is_critical(command, Path::new("/home/u/code/api"), Path::new("/home/u"))
}

#[test]
fn removing_a_root_a_home_or_the_project_is_critical_in_every_spelling() {
    for command in [
        // The spellings of PR-04.
        "rm -rf /",
        "rm -fr /",
        "rm -r -f /",
        "rm --recursive --force /",
        "rm --rec /",
        "rm -rfv /",
        "/bin/rm -rf /",
        "\\rm -rf /",
        "r\"\"m -rf /",
        "'rm' -rf '/'",
        "rm -Rf /",
        "rm / -rf",
        "rm -rf -- /",
        "$'\\x72m' -rf /",
        "rm${IFS}-rf${IFS}/",
        "{rm,-rf,/}",
        // Targets.
        "rm -rf //",
        "rm -rf /./",
        "rm -rf /home/..",
        "rm -rf /*",
        "rm -rf /.*",
        "rm -rf /*/*",
        "rm -rf /etc",
        "rm -rf /etc/",
        "rm -rf /usr/*",
        "rm -rf ~",
        "rm -rf ~/",
        "rm -rf ~/*",
        "rm -rf ~root",
        "rm -rf \"$HOME\"",
        "rm -rf ${HOME}/",
        "rm -rf $HOME/*",
        "rm -rf /home/u",
        "rm -rf /home",
        "rm -rf .",
        "rm -rf ./",
        "rm -rf *",
        "rm -rf ./*",
        "rm -rf .*",
        "rm -rf ..",
        "rm -rf ../..",
        "rm -rf ../api",
        "rm -rf ../*",
        "rm -rf $PWD",
        "rm -rf $(pwd)",
        "rm -rf `pwd`/*",
        "rm -rf $DIR/",
        "rm -rf $DIR/*",
        "rm -rf \"$DIR\"/*",
        "rm -rf ${DIR:-}/*",
        "rm -rf $(cat where)/*",
        "rm -rf \"$(cat where)\"/",
        "rm -rf /{bin,etc}",
        "rm -rf x y /",
        "rm -f ~/*",
        "rmdir /etc",
        "rm -rf --no-preserve-root x",
        "cd / && rm -rf *",
        "cd ~; rm -rf .",
        "cd $SOMEWHERE && rm -rf *",
        "D=/; rm -rf $D",
        "X=rm; $X -rf /",
        "$UNKNOWN -rf /",
    ] {
        assert!(critical(command), "{command} was not critical");
    }
}

#[test]
fn it_is_found_behind_anything_that_runs_it() {
    for command in [
        "sudo rm -rf /",
        "sudo -u root -n rm -rf /",
        "env FOO=1 rm -rf /",
        "FOO=1 rm -rf /",
        "nohup rm -rf / &",
        "timeout 5 rm -rf /",
        "nice -n 10 rm -rf /",
        "command rm -rf /",
        "exec rm -rf /",
        "builtin command rm -rf /",
        "setsid stdbuf -o0 rm -rf /",
        "echo / | xargs rm -rf",
        "ls; rm -rf /",
        "ls && rm -rf /",
        "ls || rm -rf /",
        "ls | rm -rf /",
        "ls & rm -rf /",
        "ls\nrm -rf /",
        "( rm -rf / )",
        "{ rm -rf /; }",
        "if true; then rm -rf /; fi",
        "for x in 1; do rm -rf /; done",
        "f() { rm -rf /; }; f",
        "echo $(rm -rf /)",
        "echo \"$(rm -rf /)\"",
        "echo `rm -rf /`",
        "echo \"$(date)\"; rm -rf /",
        "cat <(rm -rf /)",
        "echo hi > $(rm -rf /)",
        "echo ${x:-$(rm -rf /)}",
        "echo $((a[$(rm -rf /)]))",
        "echo \"$( (date); rm -rf / )\"",
        "echo \"it's\"; rm -rf /; echo 'x'",
        "case x in a) rm -rf /;; esac",
        "x=$(case x in a) rm -rf /;; esac)",
        "cat <<EOF | sh\nrm -rf /\nEOF",
        "cat <<EOF && rm -rf /\nEOF",
        "bash -c 'rm -rf /'",
        "sh -c \"sh -c 'rm -rf /'\"",
        "eval 'rm -rf /'",
        "eval rm -rf /",
        "ssh host 'rm -rf /'",
        "env -S 'rm -rf /'",
        "busybox rm -rf /",
        "find . -exec rm -rf / \\;",
    ] {
        assert!(critical(command), "{command} was not critical");
    }
}

#[test]
fn other_ways_to_lose_a_machine_are_critical() {
    for command in [
        "mkfs /dev/sda1",
        "mkfs.ext4 /dev/sda1",
        "sudo mkfs.xfs x",
        "dd if=/dev/zero of=/dev/sda",
        "dd of=/dev/nvme0n1 if=x",
        "cat x > /dev/sda",
        "echo x >/dev/nvme0n1",
        "D=/dev/sda; cat x > $D",
        "cat x | tee /dev/sdb",
        "cp image /dev/mmcblk0",
        "shred -u file",
        "wipefs -a /dev/sda",
        ":(){ :|:& };:",
        "bomb() { bomb | bomb & }; bomb",
        "function b() { b|b& }; b",
        "chmod -R 777 /",
        "chmod --recursive 000 ~",
        "chown -R nobody /etc",
        "chown -R u:u ~",
        "find / -delete",
        "find ~ -type f -delete",
        "find / -name x -exec rm {} \\;",
        "find . -delete",
        "find -delete",
        "shutdown now",
        "sudo reboot",
        "systemctl poweroff",
        "init 0",
        "kill -9 -1",
    ] {
        assert!(critical(command), "{command} was not critical");
    }
}

#[test]
fn everyday_commands_are_not_critical() {
    for command in [
        "",
        "ls -la /",
        "cat /etc/passwd",
        "cargo test",
        "cargo nextest run shutdown",
        "git rm -r --cached .",
        "git status && git log --oneline | head -5",
        "rm file.txt",
        "rm -f target/debug/x",
        "rm -rf target",
        "rm -rf ./node_modules dist",
        "rm -rf ~/code/other/target",
        "rm -rf /tmp/scratch-1",
        "rm -rf /home/u/code/api/build",
        "rm -rf \"$DIR\"",
        "rm -rf $DIR/cache",
        "rm *.log",
        "rm -rf build/*",
        "cd build && rm -rf x",
        "find . -name '*.pyc' -delete",
        "find / -name x",
        "chmod +x run.sh",
        "chmod -R u+w .",
        "chown -R u:u build",
        "dd if=a of=b bs=1M",
        "echo x > /dev/null",
        "make 2>/dev/stderr >/dev/null",
        "echo hello > out.txt",
        "kill -9 1234",
        "kill -1 1234",
        "systemctl --user restart agentd",
        "npm run reboot",
        "grep -r 'rmdir' .",
        "f() { g | h; }; f",
    ] {
        assert!(!critical(command), "{command} was critical");
    }
}

#[test]
fn long_or_odd_text_ends_with_a_question() {
    assert!(critical(&"x ".repeat(MAX_LEN)));
    let doubling = format!("A=xx;{}echo $A", "A=$A$A;".repeat(5_000));
    let _ = critical(&doubling);
    let nested = format!("{}rm -rf /", "'a \"".repeat(2_000));
    let _ = critical(&nested);
}
