//! What rules cover, and what is said of those that cannot be read.

use super::*;

fn parse(deny: &[&str], ask: &[&str], allow: &[&str]) -> (Rules, Vec<String>) {
    let texts = [(List::Deny, deny), (List::Ask, ask), (List::Allow, allow)]
        .into_iter()
        .flat_map(|(list, texts)| {
            texts.iter().map(move |text| RuleText {
                list,
                text: (*text).to_owned(),
                layer: Layer::User,
                place: Some("config.toml:3".into()),
            })
        })
        .collect();
    let (rules, notices) = Rules::parse(texts);
    assert!(notices.iter().all(|notice| notice.code == "config.rule"));
    (rules, notices.into_iter().map(|notice| notice.text).collect())
}

fn asked(tool: &str) -> Asked<'_> {
    let (project, home) = (Path::new("/home/u/api"), Path::new("/home/u"));
    let anchors = Anchors { cwd: project, root: project, home };
    Asked { tool, mode: Mode::Default, anchors, persons: true }
}

/// The rule of each list that covers every call of a tool.
fn found<'a>(rules: &'a Rules, tool: &str) -> (Option<&'a str>, Option<&'a str>, Option<&'a str>) {
    let asked = asked(tool);
    (
        rules.denied(None, asked).map(Rule::text),
        rules.asked(None, asked).map(Rule::text),
        rules.allowed(&Effect::EnterPlan, asked).map(Rule::text),
    )
}

#[test]
fn bare_names_and_their_aliases_cover_our_tools() {
    for (rule, tools) in [
        ("run_shell", &["run_shell"][..]),
        ("Bash", &["run_shell"]),
        ("bash", &["run_shell"]),
        (" Bash ", &["run_shell"]),
        ("Bash(*)", &["run_shell"]),
        ("Bash()", &["run_shell"]),
        ("Edit", &["edit_file", "write_file"]),
        ("Write", &["write_file"]),
        ("Read", &["read_file", "list_files", "grep_search"]),
        ("read_file", &["read_file"]),
        ("Glob", &["list_files"]),
        ("Grep", &["grep_search"]),
        ("AskUserQuestion", &["ask_user_question"]),
        ("EnterPlanMode", &["enter_plan_mode"]),
        ("ExitPlanMode", &["exit_plan_mode"]),
    ] {
        let (rules, notices) = parse(&[rule], &[rule], &[rule]);
        assert_eq!(notices, Vec::<String>::new(), "{rule}");
        for tool in TOOLS {
            let expected = tools.contains(tool).then_some(rule);
            assert_eq!(found(&rules, tool), (expected, expected, expected), "{rule} about {tool}");
        }
    }
}

#[test]
fn a_closing_rule_of_which_only_the_name_is_understood_covers_the_whole_tool() {
    for (rule, tool) in [
        ("Bash(rm", "run_shell"),
        ("Bash (rm", "run_shell"),
        ("Read([)", "read_file"),
        ("Edit(../x)", "write_file"),
        ("ExitPlanMode(x)", "exit_plan_mode"),
    ] {
        let (rules, notices) = parse(&[rule], &[rule], &[]);
        assert_eq!(found(&rules, tool), (Some(rule), Some(rule), None), "{rule}");
        assert!(notices[0].starts_with("config.toml:3: permissions.deny: of "), "{notices:?}");
        assert!(
            notices[0].contains("denies all of") && notices[1].contains("asks about all of"),
            "{notices:?}"
        );
        let (rules, notices) = parse(&[], &[], &[rule]);
        assert_eq!((found(&rules, tool), notices.len()), ((None, None, None), 1), "{rule}");
        assert!(notices[0].contains("is ignored"), "{notices:?}");
    }
}

#[test]
fn an_unknown_tool_is_reported_with_the_nearest_name() {
    for (typo, meant) in [
        ("run_shel", Some("run_shell")),
        ("Bsh", Some("Bash")),
        ("readfile", Some("read_file")),
        ("WebFtch(domain:x.org)", Some("WebFetch")),
        ("Telescope", None),
    ] {
        let (rules, notices) = parse(&[typo], &[], &[]);
        assert!(rules.iter().next().is_none() && !rules.is_unreadable());
        match meant {
            Some(meant) => assert!(notices[0].ends_with(&format!("Did you mean {meant}?")), "{notices:?}"),
            None => assert!(notices[0].ends_with("covers nothing."), "{notices:?}"),
        }
    }
}

#[test]
fn a_deny_rule_that_cannot_be_understood_closes_everything() {
    for bad in ["", "  ", "*", "(rm)", "Ba sh", "Bash;rm", "Bäsh"] {
        let (rules, notices) = parse(&[bad], &[], &["Read"]);
        assert!(rules.is_unreadable(), "{bad:?}");
        assert!(notices[0].contains("closes everything"), "{notices:?}");
        let (rules, notices) = parse(&[], &[bad], &[bad]);
        assert!(rules.iter().next().is_none() && !rules.is_unreadable(), "{bad:?}");
        assert_eq!(notices.len(), 2);
    }
}

#[test]
fn a_hostile_name_costs_little() {
    let (_, notices) = parse(&[], &[], &[&"a".repeat(1 << 20)]);
    assert_eq!(notices.len(), 1);
}

fn host(host: &str) -> Effect {
    Effect::FetchHost(HostTarget { host: host.into(), url: format!("https://{host}/x") })
}

#[test]
fn hosts_are_covered_whole_or_below_a_domain() {
    for (rule, name, covered) in [
        ("WebFetch(domain:docs.rs)", "docs.rs", true),
        ("WebFetch(domain:DOCS.rs.)", "docs.rs", true),
        ("WebFetch(domain:docs.rs)", "evil-docs.rs", false),
        ("WebFetch(domain:docs.rs)", "x.docs.rs", false),
        ("WebFetch(domain:*.docs.rs)", "x.docs.rs", true),
        ("WebFetch(domain:*.docs.rs)", "y.x.docs.rs", true),
        ("WebFetch(domain:*.docs.rs)", "docs.rs", false),
        ("WebFetch(domain:*.docs.rs)", "evildocs.rs", false),
        ("WebFetch", "docs.rs", true),
    ] {
        let (rules, notices) = parse(&[rule], &[], &[rule]);
        assert_eq!(notices, Vec::<String>::new());
        let closed = rules.denied(Some(&host(name)), asked("web_fetch")).is_some();
        let open = rules.allowed(&host(name), asked("web_fetch")).is_some();
        assert_eq!((closed, open), (covered, covered), "{rule} {name}");
    }
    for bad in ["WebFetch(docs.rs)", "WebFetch(domain:)", "WebFetch(domain:a b)", "WebFetch(domain:*)"] {
        assert_eq!(parse(&[], &[], &[bad]).1.len(), 1, "{bad}");
    }
}

fn mcp(server: &str, tool: &str, layer: McpLayer) -> Effect {
    Effect::CallMcp(McpTarget {
        server: server.into(),
        tool: tool.into(),
        layer,
        identity: crate::ids::digest_of(server.as_bytes()),
        reads_only: false,
    })
}

/// PR-16: names are compared as they are, from the side of the call.
#[test]
fn mcp_rules_cover_exactly_the_servers_they_name() {
    for (rule, server, tool, closed, open) in [
        ("mcp__git", "git", "push", true, true),
        ("mcp__git__*", "git", "push", true, true),
        ("mcp__git__push", "git", "push", true, true),
        ("mcp__git__push", "git", "pull", false, false),
        ("mcp__git", "github", "push", false, false),
        ("mcp__foo.bar", "foo_bar", "x", false, false),
        ("mcp__foo.bar", "foo.bar", "x", true, true),
        // Could mean two things: it closes both and opens neither.
        ("mcp__a__b__c", "a", "b__c", true, true),
        ("mcp__a__b__c", "a__b", "c", true, false),
    ] {
        let (rules, notices) = parse(&[rule], &[], &[rule]);
        assert_eq!(notices, Vec::<String>::new());
        let call = mcp(server, tool, McpLayer::User);
        assert_eq!(rules.denied(Some(&call), asked("mcp")).is_some(), closed, "{rule} {server} {tool}");
        assert_eq!(rules.allowed(&call, asked("mcp")).is_some(), open, "{rule} {server} {tool}");
    }
    assert!(
        parse(&["mcp__*"], &[], &[])
            .0
            .denied(Some(&mcp("x", "y", McpLayer::Project)), asked("mcp"))
            .is_some()
    );
    for bad in ["mcp__*", "mcp__", "mcp__g*t", "mcp__git__pu*", "mcp__git(x)"] {
        assert_eq!(parse(&[], &[], &[bad]).1.len(), 1, "{bad}");
    }
}

/// F19: the same name from another file, or for another command, is another server.
#[test]
fn what_allows_an_mcp_server_is_bound_to_layer_and_identity() {
    let (rules, _) = parse(&[], &[], &["mcp__git"]);
    assert!(rules.allowed(&mcp("git", "push", McpLayer::User), asked("mcp")).is_some());
    assert!(rules.allowed(&mcp("git", "push", McpLayer::Project), asked("mcp")).is_none());
    let grant =
        |identity| Grant { rule: "mcp__git__push".into(), layer: Layer::Saved, unconfined: false, identity };
    for (identity, covered) in [
        (Some(crate::ids::digest_of(b"git")), true),
        (Some(crate::ids::digest_of(b"another command")), false),
        (None, false),
    ] {
        let rules = Rules::default().with_grants(&[grant(identity)]);
        for layer in [McpLayer::User, McpLayer::Project] {
            assert_eq!(rules.allowed(&mcp("git", "push", layer), asked("mcp")).is_some(), covered);
        }
    }
}

#[test]
fn agents_and_skills_are_covered_by_name() {
    let (rules, _) = parse(&["Agent(general)", "Skill(deploy)"], &[], &["Agent"]);
    let denied = |effect: Effect| rules.denied(Some(&effect), asked("x")).is_some();
    assert!(denied(Effect::SpawnAgent("general".into())) && denied(Effect::UseSkill("deploy".into())));
    assert!(!denied(Effect::SpawnAgent("explore".into())) && !denied(Effect::UseSkill("deploy2".into())));
    assert!(rules.allowed(&Effect::SpawnAgent("explore".into()), asked("x")).is_some());
}

#[test]
fn what_a_person_allowed_for_a_session_counts_for_persons_only() {
    let grant = |layer| Grant { rule: "Read(//etc/hosts)".into(), layer, unconfined: false, identity: None };
    let target = PathTarget { via: Via::Tool, typed: "/etc/hosts".into(), real: "/etc/hosts".into() };
    for (layer, others) in [(Layer::Session, false), (Layer::Saved, true)] {
        let rules = Rules::default().with_grants(&[grant(layer)]);
        for (persons, covered) in [(true, true), (false, others)] {
            let asked = Asked { persons, ..asked("read_file") };
            assert_eq!(rules.allowed(&Effect::ReadPath(target.clone()), asked).is_some(), covered);
        }
    }
}

/// PR-11: a link may not open what the rule does not name, nor hide what it does.
#[test]
fn both_names_of_a_path_open_it_and_either_closes_it() {
    let path = |typed: &str, real: &str| {
        Effect::ReadPath(PathTarget { via: Via::Tool, typed: typed.into(), real: real.into() })
    };
    for (typed, real, closed, open) in [
        ("box/f", "/home/u/api/box/f", true, true),
        ("/home/u/api/./box/x/../f", "/home/u/api/box/f", true, true),
        ("box/f", "/outside/f", true, false),
        ("other/f", "/home/u/api/box/f", true, false),
        ("other/f", "/outside/f", false, false),
    ] {
        let (rules, _) = parse(&["Read(/box/**)"], &[], &["Read(/box/**)"]);
        let effect = path(typed, real);
        assert_eq!(rules.denied(Some(&effect), asked("read_file")).is_some(), closed, "{typed} {real}");
        assert_eq!(rules.allowed(&effect, asked("read_file")).is_some(), open, "{typed} {real}");
    }
}
