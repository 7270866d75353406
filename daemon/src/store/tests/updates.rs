use super::*;

impl Bench {
    /// A later commit of a session.
    async fn goes_on(&self, row: &Row, from: u64, to: Reach, said: &str) {
        let texts = Text::new(Seq(to.next.0 - 1), at(to.bytes as i64), SearchRole::Assistant, said);
        self.store.committed(Update { row: row.clone(), from, to, texts: texts.into_iter().collect() });
        assert!(self.store.settle().await);
    }

    fn mark_of(&self, row: &Row) -> Option<Reach> {
        self.store.known_of(row.session_id).unwrap().map(|(_, mark)| mark)
    }

    /// What is due of a session; nothing else may be.
    fn due(&self, row: &Row) -> Option<Repair> {
        let due = self.store.shared.ledger.take_due();
        assert!(due.iter().all(|(id, _)| *id == row.session_id), "{due:?}");
        let due = due.first().map(|(_, repair)| *repair);
        self.store.repaired(row.session_id);
        due
    }
}

#[tokio::test]
async fn a_change_is_taken_only_where_the_index_stands() {
    let bench = Bench::new().await;
    let session = row("/a");
    bench.says(&session, &[]).await;
    bench.goes_on(&session, 100, mark(150, 4), "one").await;
    assert_eq!((bench.mark_of(&session), bench.due(&session)), (Some(mark(150, 4)), None));
    assert!(bench.store.unsettled().is_empty());

    // Something was missed in between.
    bench.goes_on(&session, 160, mark(200, 6), "two").await;
    assert!(bench.store.unsettled().contains(&session.session_id));
    assert_eq!((bench.mark_of(&session), bench.due(&session)), (Some(mark(150, 4)), Some(Repair::Tail)));
    // It was read from the file already.
    bench.goes_on(&session, 100, mark(150, 4), "one").await;
    bench.goes_on(&session, 100, mark(120, 3), "one").await;
    assert_eq!((bench.mark_of(&session), bench.due(&session)), (Some(mark(150, 4)), None));
    // The journal goes another way than the one that is known.
    for to in [mark(150, 5), mark(170, 5)] {
        bench.goes_on(&session, 120, to, "other").await;
        assert_eq!((bench.mark_of(&session), bench.due(&session)), (Some(mark(150, 4)), Some(Repair::Whole)));
    }
    assert_eq!((bench.find("one").len(), bench.find("other").len()), (1, 0));

    // Of a session that is not known, the beginning is missing.
    let unknown = row("/b");
    bench.goes_on(&unknown, 100, mark(150, 4), "x").await;
    assert_eq!((bench.mark_of(&unknown), bench.due(&unknown)), (None, Some(Repair::Tail)));
}

#[tokio::test]
async fn what_a_file_says_may_have_been_overtaken() {
    let bench = Bench::new().await;
    let session = row("/a");
    bench.says(&session, &[]).await;
    for from in [0, 50, 120] {
        let update = Update { row: session.clone(), from, to: mark(200, 9), texts: Vec::new() };
        bench.store.read_from_file(update, 80).await;
        assert!(bench.store.settle().await);
        assert_eq!((bench.mark_of(&session), bench.due(&session)), (Some(mark(100, 2)), Some(Repair::Tail)));
    }
    let update = Update { row: session.clone(), from: 100, to: mark(200, 9), texts: Vec::new() };
    bench.store.read_from_file(update, 100).await;
    assert!(bench.store.settle().await);
    assert_eq!((bench.mark_of(&session), bench.due(&session)), (Some(mark(200, 9)), None));
    assert_eq!(bench.store.bytes_read(), 340);
}

#[tokio::test]
async fn an_opened_journal_shows_what_the_index_lacks_or_has_too_much() {
    let bench = Bench::new().await;
    let session = row("/a");
    for (known, opened, due) in [
        (None, mark(100, 2), Some(Repair::Tail)),
        (Some(()), mark(100, 2), None),
        (Some(()), mark(180, 5), Some(Repair::Tail)),
        (Some(()), mark(80, 2), Some(Repair::Whole)),
        (Some(()), mark(100, 3), Some(Repair::Whole)),
    ] {
        if known.is_some() {
            bench.says(&session, &[]).await;
        }
        bench.store.opened(session.session_id, opened);
        assert!(bench.store.settle().await);
        assert_eq!(bench.due(&session), due, "{opened:?}");
    }
}

#[tokio::test]
async fn a_full_queue_stops_nobody_and_what_it_dropped_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("index.db");
    let (store, writer) = Store::parts(path);
    let bench = Bench { folder, store };
    let rows: Vec<Row> = (0..QUEUE + 20).map(|_| row("/a")).collect();
    // Nobody takes anything from the queue, and none of this waits.
    for row in &rows {
        bench.store.committed(Update { row: row.clone(), from: 0, to: mark(9, 2), texts: Vec::new() });
    }
    bench.store.opened(rows[0].session_id, mark(9, 2));
    bench.store.deleted(rows[1].session_id);
    assert!(!bench.store.settle().await);
    assert_eq!(bench.store.unsettled().len(), rows.len());
    assert!(bench.store.is_gone(rows[1].session_id));

    let thread = std::thread::spawn(move || writer.run());
    bench.open().await;
    assert_eq!(bench.ids().len(), QUEUE);
    let Work::Some(mut due) = bench.store.work(1).await else { panic!("nothing is due") };
    due.sort();
    let mut expected: Vec<(SessionId, Repair)> =
        rows[QUEUE..].iter().map(|row| (row.session_id, Repair::Tail)).collect();
    expected.extend([(rows[0].session_id, Repair::Whole), (rows[1].session_id, Repair::Tail)]);
    expected.sort();
    assert_eq!(due, expected);
    bench.store.stop().await;
    thread.join().unwrap();
}

#[tokio::test]
async fn a_deleted_session_is_hidden_at_once_and_may_begin_anew() {
    let bench = Bench::new().await;
    let session = row("/a");
    bench.says(&session, &[(SearchRole::User, "secret")]).await;
    bench.store.deleted(session.session_id);
    assert!(bench.store.is_gone(session.session_id));
    assert_eq!(bench.due(&session), Some(Repair::Tail));
    bench.store.forget(session.session_id).await;
    assert!(bench.store.settle().await);
    assert_eq!((bench.ids().len(), bench.find("secret").len()), (0, 0));
    assert!(bench.store.unsettled().is_empty());

    // A client may give the same id again, also before the old one is out.
    bench.says(&session, &[(SearchRole::User, "first")]).await;
    bench.store.deleted(session.session_id);
    bench.says(&session, &[(SearchRole::User, "second")]).await;
    assert!(!bench.store.is_gone(session.session_id));
    assert_eq!((bench.find("first").len(), bench.find("second").len()), (0, 1));
}

#[tokio::test]
async fn rows_come_in_the_order_asked_for() {
    let bench = Bench::new().await;
    let mut rows: Vec<Row> = (0..6).map(|n| row(if n % 2 == 0 { "/even" } else { "/odd" })).collect();
    for (n, row) in rows.iter_mut().enumerate() {
        row.updated_at = at([5, 3, 9, 1, 9, 7][n]);
        bench.says(row, &[]).await;
    }
    let numbers = |order: Order<'_>, enough: usize| {
        let mut found = Vec::new();
        let visit = |row: Row| {
            found.push(rows.iter().position(|known| *known == row).unwrap());
            if found.len() < enough {
                std::ops::ControlFlow::Continue(())
            } else {
                std::ops::ControlFlow::Break(())
            }
        };
        bench.store.rows(&order, None, visit).unwrap();
        found
    };
    assert_eq!(numbers(Order::Created { after: None, cwd: None }, 9), [0, 1, 2, 3, 4, 5]);
    assert_eq!(numbers(Order::Created { after: Some(rows[2].session_id), cwd: None }, 2), [3, 4]);
    assert_eq!(numbers(Order::Created { after: Some(rows[2].session_id), cwd: Some("/odd") }, 9), [3, 5]);
    assert_eq!(numbers(Order::Updated { cwd: None }, 9), [4, 2, 5, 0, 1, 3]);
    assert_eq!(numbers(Order::Updated { cwd: Some("/even") }, 2), [4, 2]);
}
