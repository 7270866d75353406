"""The rules of the to-do service, without any HTTP."""

from dataclasses import asdict

from todo.store import Store


class NotFound(Exception):
    pass


class Invalid(Exception):
    pass


class Service:
    def __init__(self, store=None):
        self.store = store or Store()

    def list_todos(self):
        todos = [asdict(todo) for todo in self.store.all()]
        return {"todos": todos}

    def add_todo(self, title):
        title = title.strip()
        if not title:
            raise Invalid("title must not be empty")
        return asdict(self.store.add(title))

    def finish_todo(self, todo_id):
        todo = self.store.get(todo_id)
        if todo is None:
            raise NotFound(f"no to-do {todo_id}")
        todo.done = True
        return asdict(todo)
