//! What concerns a session and its children together.

use agentd_protocol::session::ListParams;
use agentd_protocol::turn::Outcome;

use super::*;

#[tokio::test]
async fn lists_hide_children_unless_asked() {
    let home = Home::start(says("Hello.")).await;
    let root = home.session(Mode::Default).await;
    let child = home.child(root).await;
    for home in [home] {
        let home = home.restart().await;
        let list = |children| ListParams { children, ..ListParams::default() };
        let shown = home.registry.list(&list(false)).await.unwrap().sessions;
        assert_eq!(shown.iter().map(|row| row.session_id).collect::<Vec<_>>(), [root]);
        let all = home.registry.list(&list(true)).await.unwrap().sessions;
        assert_eq!(
            all.iter().map(|row| (row.session_id, row.parent)).collect::<Vec<_>>(),
            [(root, None), (child, Some(root))]
        );
    }
}

#[tokio::test]
async fn an_interrupt_stops_what_the_children_run_and_no_other() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let root = home.session(Mode::Default).await;
    let child = home.child(root).await;
    let (grandchild, stranger) = (home.child(child).await, home.session(Mode::Default).await);
    let mut turns = Vec::new();
    for id in [root, child, grandchild, stranger] {
        let mut listener = home.listen(id).await;
        turns.push((id, home.prompt(id, "go").await.turn_id));
        listener.next("permissionDecided").await;
    }
    home.registry.interrupt(root, None, person()).await.unwrap();
    for (id, turn) in &turns[..3] {
        assert_eq!(home.wait(*id, *turn).await.outcome, Outcome::Interrupted);
    }
    home.probe.gate.0.add_permits(4);
    let (id, turn) = turns[3];
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn deleting_a_session_removes_its_children_wherever_they_lie() {
    for indexed in [true, false] {
        let home = Home::start(says("Hello.")).await;
        let root = home.session(Mode::Default).await;
        let child = home.child(root).await;
        let (grandchild, stranger) = (home.child(child).await, home.session(Mode::Default).await);
        let home = home.restart().await;
        if indexed {
            home.registry.store.until(|standing| *standing == crate::store::Standing::Ready).await;
        }
        assert_eq!(home.registry.descendants(root).await.unwrap(), [child, grandchild]);
        home.registry.delete(root).await.unwrap();
        for id in [root, child, grandchild] {
            assert!(!home.paths.session_dir(id).exists());
            assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::NotFound(_))));
        }
        assert!(home.paths.session_dir(stranger).exists());
        assert!(matches!(home.registry.delete(root).await, Err(SessionError::NotFound(_))));
    }
}
